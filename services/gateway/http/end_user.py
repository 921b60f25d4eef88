"""The end user whom an answer is for, by the fields that the APIs have for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from services.gateway.http.fields import Fields
from services.gateway.http.sse import compact

_NAMES = ("safety_identifier", "user")  # OpenAI's; Anthropic's is `metadata.user_id`


def end_user(body: Fields) -> list[str]:
    """Each name that a body has for its end user, once: two requests are of one end user where all are the same. A
    provider gets the fields as they are."""
    return list(dict.fromkeys(filter(None, map(_text, _given(body)))))


def _given(body: Fields) -> Iterator[Any]:
    yield from map(body.seen, _NAMES)
    metadata = body.seen("metadata")
    yield metadata.get("user_id") if isinstance(metadata, dict) else None


def _text(given: Any) -> str:
    if given is None or isinstance(given, str):
        return given or ""
    return compact(given).decode()
