"""Tools for the source tree; none of them is shipped."""
