"""How a command says that it failed: one line on stderr, or one JSON object on stdout, and exit code 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, NoReturn

import typer

from hedgerow import HedgerowError

_OF_THE_SDK = "; allow_fallback=True returns the gateway's fixed text"  # no command has this option
# The command that starts a missing service, by reason.
_STARTED_BY = dict.fromkeys(("NO_GATEWAY", "NO_CACHE_SERVICE", "NO_VISION_SERVICE", "NO_AUDIO_SERVICE"), "hedgerow up")
_STARTED_BY["NO_CONTROL_PLANE"] = "hedgerow up --mesh"


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Ends the command when an answer could not be had."""
    try:
        yield
    except HedgerowError as error:
        if not as_json:
            fail(explain(error))
        print(json.dumps({"error": as_object(error), "decisions": [asdict(made) for made in error.decisions]}))
        raise typer.Exit(1) from None


@contextmanager
def needs(extra: str, as_json: bool = False) -> Iterator[None]:
    """Ends the command when what is imported inside is not installed, and says which extra brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        fail(f"{missing} is not installed; install it with: pip install 'hedgerow[{extra}]'", "NOT_INSTALLED", as_json)


def as_object(error: HedgerowError) -> dict[str, Any]:
    """The error for programs."""
    fields = {"code": error.code, "reason": error.reason, "message": explain(error)}
    return {**fields, "retry_delay_s": error.retry_delay_s}


def fail(message: str, reason: str = "", as_json: bool = False, code: str = "FAILED_PRECONDITION") -> NoReturn:
    """End the command with a line on stderr, or with an object on stdout that has `reason` and `code` too."""
    if as_json:
        print(json.dumps({"error": {"code": code, "reason": reason, "message": message}}))
    else:
        notify(message)
    raise typer.Exit(1)


def notify(message: str) -> None:
    """A line on stderr; the command goes on."""
    from hedgerow_cli.terminal import harmless  # imports rich, which only an error needs

    print(f"hedgerow: {harmless(message)}", file=sys.stderr, flush=True)


def explain(error: HedgerowError) -> str:
    """The message, and what to do about it."""
    message = error.message.replace("allow_plaintext_key=True", "--plaintext-key").replace(_OF_THE_SDK, "")
    if command := _STARTED_BY.get(error.reason):
        message += f'; start one with "{command}"'
    if error.reason == "KEY_UNKNOWN":
        message += "; set HEDGEROW_API_KEY to a key of the gateway, or pass it with --api-key"
    if error.retry_delay_s is not None and "retry in" not in message:
        message += f"; try again in {error.retry_delay_s:.1f} s"
    if error.trace_id:
        message += f" (trace {error.trace_id})"
    return message
