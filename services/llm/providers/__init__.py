"""Providers behind the seam: servers of others, over HTTP (`transport/`), in the words of their API (`dialects/`)."""
