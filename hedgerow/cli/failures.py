"""How a command says that it failed: one line on stderr, or one JSON object on stdout, and exit code 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import NoReturn

import typer

from hedgerow import HedgerowError


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Ends the command when an answer could not be had."""
    try:
        yield
    except HedgerowError as error:
        message = explain(error)
        if not as_json:
            fail(message)
        fields = {"code": error.code, "reason": error.reason, "message": message, "retry_delay_s": error.retry_delay_s}
        print(json.dumps({"error": fields, "decisions": [asdict(made) for made in error.decisions]}))
        raise typer.Exit(1) from None


def fail(message: str) -> NoReturn:
    """End the command with a line on stderr."""
    print(f"hedgerow: {message}", file=sys.stderr)
    raise typer.Exit(1)


def explain(error: HedgerowError) -> str:
    """The message, and what to do about it."""
    message = error.message
    if error.reason == "NO_GATEWAY":
        message += '; start one with "hedgerow up"'
    if error.retry_delay_s is not None:
        message += f"; try again in {error.retry_delay_s:.1f} s"
    if error.trace_id:
        message += f" (trace {error.trace_id})"
    return message
