"""What a provider's answer looks like: server-sent events of OpenAI's chat completions."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
_COMMON = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "simulated"}


def text(content: str, finish_reason: str | None = None) -> bytes:
    """More of the answer."""
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return _event({**_COMMON, "choices": [choice], "usage": None})


def usage(completion_tokens: int) -> bytes:
    """What the answer cost."""
    return _event({**_COMMON, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": completion_tokens}})


def _event(message: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(message)}\n\n".encode()
