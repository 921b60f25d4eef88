"""What keeps the source tree: nothing of it is shipped."""
