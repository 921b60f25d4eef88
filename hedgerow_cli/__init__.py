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
            f"hedgerow: there is no {error.name} here; install it with: pip install 'hedgerow[{extra}]'"
        ) from None

    app(prog_name="hedgerow")
