"""A simulated provider of Anthropic's Messages API; the API's own types check what passes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from services.llm.config import LlmSettings
from services.llm.engine import Chunk, Message, Request
from services.llm.providers.anthropic import AnthropicEngine
from services.llm.providers.config import AnthropicSettings
from services.llm.providers.transport.wire import Broken
from services.runtime.deadline import Deadline
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider

HELLO = (Message("user", "Hello."),)
USAGE = {"input_tokens": 3, "cache_read_input_tokens": 8, "cache_creation_input_tokens": 1, "output_tokens": 1}


@cache
def maker_s(name: str) -> TypeAdapter[Any]:
    """A type of the maker's own client, whose import takes two seconds: of every worker's if it were above."""
    from anthropic import types

    return TypeAdapter(getattr(types, name))


def event(type: str, **fields: Any) -> str:
    message = {"type": type, **fields}
    if type not in ("ping", "error"):
        maker_s("RawMessageStreamEvent").validate_python(message)
    return f"event: {type}\ndata: {json.dumps(message)}\n\n"


def started(**usage: int) -> str:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "big", "content": []}
    ends = {"stop_reason": None, "stop_sequence": None}
    return event("message_start", message={**message, **ends, "usage": {**USAGE, **usage}})


def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[str]:
    return [
        event("content_block_start", index=index, content_block=kind),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text(*pieces: str, index: int = 0) -> list[str]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def ended(reason: str = "end_turn", **usage: Any) -> list[str]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [event("message_delta", delta=delta, usage={"output_tokens": 12, **usage}), event("message_stop")]


def provider(*pieces: str | Broken, **fields: Any) -> SimulatedProvider:
    return SimulatedProvider((started(), *pieces), **fields)


def engine(simulated: SimulatedProvider, **own: Any) -> AnthropicEngine:
    anthropic = AnthropicSettings.model_validate(
        {"base_url": "http://provider.test/v1", "model": "big", "api_key": KEY, **own}
    )
    return AnthropicEngine(LlmSettings(engine="anthropic", anthropic=anthropic), simulated)


async def answer(simulated: SimulatedProvider, request: Request | None = None, **own: Any) -> list[Chunk]:
    request = request or Request(HELLO)
    return [chunk async for chunk in engine(simulated, **own).generate(request, Deadline.never())]
