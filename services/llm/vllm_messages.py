"""Conversations in vLLM's words, which are OpenAI's, and a name for each picture and recording."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from services.llm.engine import Message
from services.llm.openai_wire import to_messages


def to_chat(messages: tuple[Message, ...], prefix: str, salt: str) -> list[dict[str, Any]]:
    """The messages for vLLM's renderer. A prefix is the last message, left open.

    vLLM keeps what it has read of media by their `uuid`, for all tenants: so that holds the salt (ADR 23).
    """
    conversation = to_messages(messages)
    if prefix:
        conversation.append({"role": "assistant", "content": prefix})
    for part in _media(conversation):
        medium = part[part["type"]]
        part["uuid"] = hashlib.sha256(f"{salt}\0{medium.get('url') or medium['data']}".encode()).hexdigest()
    return conversation


def characters(messages: tuple[Message, ...]) -> int:
    """Of all that is written in them."""
    said = sum(len(message.content) for message in messages)
    parts = sum(len(part.text) for message in messages for part in message.parts)
    return said + parts + sum(len(call.arguments) for message in messages for call in message.tool_calls)


def has_media(messages: tuple[Message, ...]) -> bool:
    """Whether there is a picture or a recording."""
    return any(part.kind != "text" for message in messages for part in message.parts)


def _media(conversation: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in conversation:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part["type"] != "text")
