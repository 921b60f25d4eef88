"""Names the function that blocks a process's event loop, in the metrics and in the log."""
