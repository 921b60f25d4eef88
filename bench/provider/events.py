"""Server-sent events of a provider's answer, as in OpenAI's chat completions and in Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

ANSWERED = "/v1/chat/completions"
MOVED = "/v1/moved"  # to there; `pages` has the other addresses
_COMMON = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "simulated"}
_WORD = "word "
_MESSAGE = {
    **{"id": "msg_1", "type": "message", "role": "assistant", "model": "simulated", "content": []},
    **{"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 1}},
}


@dataclass(frozen=True, slots=True)
class Api:
    """The events of an answer, each as its bytes: the first ones, one for each token, and of so many tokens the end;
    `last` says that nothing more comes."""

    first: tuple[bytes, ...]
    token: bytes
    end: Callable[[int], tuple[bytes, ...]]
    last: bytes


Answer = Callable[[Api], AsyncGenerator[bytes, None]]  # the body of the next answer, event by event


def _chat_end(tokens: int) -> tuple[bytes, ...]:
    usage = {"prompt_tokens": 10, "completion_tokens": tokens}
    return _choice("", "stop"), _event({**_COMMON, "choices": [], "usage": usage})


def _choice(content: str, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish_reason}
    return _event({**_COMMON, "choices": [choice], "usage": None})


def _messages_end(tokens: int) -> tuple[bytes, ...]:
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        _named("content_block_stop", index=0),
        _named("message_delta", delta=delta, usage={"output_tokens": tokens}),
    )


def _named(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + _event({"type": kind, **fields})


def _event(message: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(message)}\n\n".encode()


CHAT = Api((), _choice(_WORD), _chat_end, b"data: [DONE]\n\n")
MESSAGES = Api(
    (
        _named("message_start", message=_MESSAGE),
        _named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ),
    _named("content_block_delta", index=0, delta={"type": "text_delta", "text": _WORD}),
    _messages_end,
    _named("message_stop"),
)
APIS = {ANSWERED: CHAT, "/v1/messages": MESSAGES}  # by path
