"""The size of a conversation: of its texts, and of the work that it makes."""

from __future__ import annotations

from collections.abc import Sequence

from services.llm.engine import Message, Tool
from services.runtime.aside import size_of_conversation, size_of_text


def characters(messages: Sequence[Message]) -> int:
    """The characters of all texts in the messages."""
    said = sum(len(message.content) for message in messages)
    parts = sum(len(part.text) for message in messages for part in message.parts)
    return said + parts + sum(len(call.arguments) for message in messages for call in message.tool_calls)


def size(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """The size of a conversation that is written as JSON, with its media in base64, for `aside`."""
    media = sum(len(part.data) + len(part.given) for message in messages for part in message.parts)
    return max(size_of_conversation(messages, tools), size_of_text(characters(messages) + media))
