"""Shared code of the Python scripts here."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

QUESTION = "What is the capital of France?"
ANOTHER = "And which one is it really?"  # the answer to the last question again would have no usage: it costs nothing
BUSY = f"Are you busy, {Path(sys.argv[0]).stem}?"  # the model is, the first time that it is asked just this
BASE_URL, PICTURE, RECORDING = (*sys.argv[1:], "", "", "")[:3]  # the last two: base64
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class City(BaseModel):
    """A city."""

    city: str


def tell(*checks: Callable[[], Any]) -> None:
    """Do one after the other; print, as JSON, what each returned, by its name."""
    print(json.dumps({check.__name__: _done(check) for check in checks}))


def tell_each(*checks: Callable[[str], Any]) -> None:
    """The same by each base URL that the script is given: a list, in their order."""
    print(json.dumps([{check.__name__: _done(partial(check, url)) for check in checks} for url in sys.argv[1:]]))


def refused(ask: Callable[[], Any]) -> list[Any]:
    """The type and the status of the error that `ask` must raise, and the field that it names."""
    try:
        answer = ask()
    except Exception as error:
        body = getattr(error, "body", None) or {}
        return [type(error).__name__, getattr(error, "status_code", None), body.get("param")]
    return ["answered", repr(answer)]


def _done(check: Callable[[], Any]) -> Any:
    try:
        return check()
    except Exception:
        return traceback.format_exc()
