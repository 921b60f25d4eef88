"""The version of the command line, without its packages."""

from __future__ import annotations

from importlib.metadata import version


def show_version() -> None:
    """Print the version that is installed."""
    print(f"hedgerow {version('hedgerow')}")
