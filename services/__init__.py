"""The services of the mesh: one folder each, one process each, and `runtime`, which they share."""
