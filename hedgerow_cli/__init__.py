"""The `hedgerow` command."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 used wrongly, 130 ended by Ctrl-C."""
    _replace_closed_streams()
    try:
        from hedgerow import HedgerowError
        from hedgerow_cli.app import app
    except ModuleNotFoundError as error:
        extra = "proxy" if sys.argv[1:2] == ["up"] else "cli"
        raise SystemExit(
            f"hedgerow: {error.name} is not installed; install it with: pip install 'hedgerow[{extra}]'"
        ) from None
    except KeyboardInterrupt:  # a command that runs ends with the same code
        raise SystemExit(130) from None

    # A character that the locale cannot write is shown by its code; a request with bytes that are no text is refused.
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    try:
        app(prog_name="hedgerow")
    except OSError as error:  # a full disk, a folder that cannot be read
        place = f"{error.filename}: " if error.filename else ""
        raise SystemExit(f"hedgerow: {place}{error.strerror or error}") from None
    except HedgerowError as error:  # of the environment, before a request
        raise SystemExit(f"hedgerow: {error.message}") from None


def _replace_closed_streams() -> None:
    """Open the null device for streams that the caller has closed, else the next file would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends
