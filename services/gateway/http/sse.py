"""Server-sent events, in the form that every client of these APIs reads, and answers that grow with them.

Events consist of `data:` lines; where the API has it, a line with the event's type comes first. A comment ends with one
newline: OpenAI's client takes a comment with a blank line after it for an event without data. There are no ids, no
`retry` and no empty fields.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from services.runtime.strict_json import compact

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
PING = b": ping\n"
DONE = b"data: [DONE]\n\n"
Join = Callable[[Iterable[str]], str]
_MALFORMED = (AttributeError, KeyError, TypeError, ValueError)  # raised for a malformed event


def event(data: Mapping[str, Any]) -> bytes:
    """An event."""
    return b"data: " + compact(data) + b"\n\n"


def named(data: Mapping[str, Any]) -> bytes:
    """An event with its type in a line of its own, as in Anthropic's API and in OpenAI's Responses."""
    return as_written(data["type"], compact(data))


def as_written(kind: str, data: bytes) -> bytes:
    """The same, of the type `kind`, whose JSON is `data`."""
    return f"event: {kind}\n".encode() + b"data: " + data + b"\n\n"


class GrowingTexts:
    """Objects have their texts once `settle` was called."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[int, str], tuple[dict[str, Any], list[str], Join]] = {}

    def add(self, holder: dict[str, Any], field: str, piece: str, join: Join = "".join) -> None:
        """More of the text in a field of an object; `join` makes one text of all pieces. Raises TypeError where either
        is no text."""
        key = id(holder), field
        if key not in self._pieces:
            self._pieces[key] = holder, [_text(holder.get(field, ""))], join
        self._pieces[key][1].append(_text(piece))

    def settle(self) -> None:
        """Write what has come into the objects."""
        for (_, field), (holder, pieces, join) in self._pieces.items():
            holder[field] = join(pieces)
        self._pieces.clear()


class GrowingAnswer(ABC):
    """An answer that grows with each event of a stream, with all fields that the events have: at the end of a long one
    no event loop waits for its assembly."""

    def __init__(self) -> None:
        self._fits = True  # the events are events of such an answer

    def add(self, event: Mapping[str, Any]) -> None:
        try:
            self._add(event)
        except _MALFORMED:
            self._fits = False

    def whole(self) -> dict[str, Any]:
        """The answer of all events so far; empty where they make none."""
        try:
            return self._made() if self._fits else {}
        except _MALFORMED:
            return {}

    @abstractmethod
    def _add(self, event: Mapping[str, Any]) -> None:
        """May raise what a malformed event does."""

    @abstractmethod
    def _made(self) -> dict[str, Any]:
        """The same as `whole`, but may raise errors of malformed events."""


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise TypeError(f"a text, got {type(given).__name__}")
    return given
