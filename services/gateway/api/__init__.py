"""The gateway's contract: one module for each of its RPCs, and what only they need."""
