"""Ids of calls in a conversation that began with another model: Mistral's API takes nine letters and digits alone, and
OpenAI's at most 40 characters. A request that is refused for its ids is repeated with others, which both take."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Any

from services.llm.engine import Chunk, Message, Request
from services.llm.errors import RequestRefused
from services.llm.providers.second_attempt import Generate, is_one_of, repeated, with_body
from services.runtime.deadline import Deadline

_REFUSALS = (("tool call id was",), ("tool_calls[", ".id", "too long"))  # words that one has together
_LENGTH = 9


def generate(generate: Generate, request: Request, deadline: Deadline) -> AsyncGenerator[Chunk, None]:
    """The answer to a chat completion, with other ids if the provider refuses those of the conversation."""
    if any(message.tool_call_id for message in request.messages):
        return repeated(generate, request, deadline, partial(_with_other_ids, request))
    return generate(request, deadline)


async def _with_other_ids(request: Request, refused: RequestRefused) -> Request | None:
    if not is_one_of(refused, _REFUSALS):
        return None
    own = request.original
    if own and own.api == "chat_completions":
        request = await with_body(request, own, _changed)
    return replace(request, messages=tuple(map(_message, request.messages)))


def _message(message: Message) -> Message:
    calls = tuple(replace(call, id=_other(call.id)) for call in message.tool_calls)
    return replace(message, tool_calls=calls, tool_call_id=_other(message.tool_call_id))


def _changed(body: dict[str, Any]) -> dict[str, Any]:
    for message in body.get("messages") or ():
        for holder, name in ((message, "tool_call_id"), *((call, "id") for call in message.get("tool_calls") or ())):
            if isinstance(holder.get(name), str):
                holder[name] = _other(holder[name])
    return body


def _other(call_id: str) -> str:
    """The same for equal ids, so that results stay with their calls."""
    digest = hashlib.sha256(call_id.encode()).digest()
    return base64.b32encode(digest).decode()[:_LENGTH] if call_id else ""
