"""The `hedgerow` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 used wrongly."""
    try:
        from hedgerow_cli.app import app
    except ModuleNotFoundError as error:
        extra = "proxy" if sys.argv[1:2] == ["up"] else "cli"
        raise SystemExit(
            f"hedgerow: {error.name} is not installed; install it with: pip install 'hedgerow[{extra}]'"
        ) from None

    try:
        app(prog_name="hedgerow")
    except OSError as error:  # a full disk, a folder that cannot be read
        place = f"{error.filename}: " if error.filename else ""
        raise SystemExit(f"hedgerow: {place}{error.strerror or error}") from None
