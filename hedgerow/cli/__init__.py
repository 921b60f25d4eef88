"""The `hedgerow` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 used wrongly."""
    from hedgerow.cli.app import app

    app(prog_name="hedgerow")
