"""Texts for a model, in which names stand in the place of secrets and personal data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hedgerow.chat.v1 import chat_pb2


def in_messages(
    messages: Iterable[chat_pb2.Message], hidden: Mapping[str, str], *, system: bool
) -> tuple[chat_pb2.Message, ...]:
    """The conversation. `system`: whether that holds for system messages, too."""
    return tuple(
        message if message.role == chat_pb2.ROLE_SYSTEM and not system else _in_message(message, hidden)
        for message in messages
    )


def in_tools(tools: Sequence[chat_pb2.Tool], hidden: Mapping[str, str]) -> Sequence[chat_pb2.Tool]:
    """The tools; as they were where there is nothing to hide in them."""
    if not any(text in hidden for tool in tools for text in (tool.description, tool.parameters)):
        return tools
    return [
        chat_pb2.Tool(
            name=tool.name,
            description=hidden.get(tool.description, tool.description),
            parameters=hidden.get(tool.parameters, tool.parameters),
            strict=tool.strict,
        )
        for tool in tools
    ]


def _in_message(message: chat_pb2.Message, hidden: Mapping[str, str]) -> chat_pb2.Message:
    if not any(text in hidden for text in (message.content, *(call.arguments for call in message.tool_calls))):
        return message
    other = chat_pb2.Message()
    other.CopyFrom(message)
    other.content = hidden.get(message.content, message.content)
    for call in other.tool_calls:
        call.arguments = hidden.get(call.arguments, call.arguments)
    return other
