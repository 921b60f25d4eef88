"""Server-sent events, in the dialect that every client of these APIs reads.

Events of `data:` lines alone. A comment ends with one newline: with a blank line after it, OpenAI's client takes it for
an event without data. No ids, no `retry`, nothing empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CONTENT_TYPE = b"text/event-stream; charset=utf-8"
PING = b": ping\n"
DONE = b"data: [DONE]\n\n"


def quoted(text: str) -> bytes:
    """A JSON string. Escaped to ASCII: some clients split lines at U+2028 and U+0085."""
    return json.dumps(text).encode()


def compact(value: object) -> bytes:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def event(data: Mapping[str, Any]) -> bytes:
    """One event."""
    return b"data: " + compact(data) + b"\n\n"


def named(data: Mapping[str, Any]) -> bytes:
    """One event that says its type in a line of its own too, as Anthropic's do."""
    return f"event: {data['type']}\n".encode() + event(data)
