"""The `hedgerow` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 used wrongly."""
    try:
        from hedgerow.cli.app import app
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"hedgerow: there is no {error.name} here; install it with: pip install 'hedgerow[cli]'"
        ) from None

    app(prog_name="hedgerow")
