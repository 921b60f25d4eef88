"""The conversation of a request: what each of its messages must be, and what its parts bring besides text."""

from __future__ import annotations

from collections.abc import Iterable

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.prompt.window import size, size_of
from services.runtime.errors import InvalidInput
from services.runtime.limits import PARTS, TOOL_CALLS

_ROLES = frozenset(chat_pb2.Role.values()) - {chat_pb2.ROLE_UNSPECIFIED}
_SPEAKING = _ROLES - {chat_pb2.ROLE_TOOL}
_MAY_BE_EMPTY = (chat_pb2.ROLE_SYSTEM, chat_pb2.ROLE_TOOL)
_MEDIA = ("image", "audio")
NO_TEXT = "…"  # stands where a message has no text
Messages = Iterable[chat_pb2.Message]


def check(request: pb.GenerateRequest, most: int) -> int:
    """Raise `InvalidInput` for the first thing about the messages that cannot be served. Returns their size in bytes
    of UTF-8, pictures and recordings apart."""
    messages, spoken = request.messages, request.HasField("audio")
    if not (0 if spoken else 1) <= len(messages) <= most:
        raise InvalidInput("messages", f"1 to {most} messages", len(messages))
    called, last, written = set[str](), len(messages) - 1, 0
    for index, message in enumerate(messages):
        if text := _text_alone(message):
            written += size_of(text)
            continue
        where = f"messages[{index}]"
        if message.role not in _ROLES:
            raise InvalidInput(f"{where}.role", "a Role, 1 to 4", message.role)
        _check_counts(where, message)
        _check_content(where, message)
        _check_parts(where, message, last=index == last)
        _check_calls(where, message, called)
        called.update(call.id for call in message.tool_calls)
        written += size((message,))
    asking = (chat_pb2.ROLE_USER, chat_pb2.ROLE_TOOL)
    if messages and messages[last].role not in asking and not spoken:
        name = chat_pb2.Role.Name(messages[last].role)
        raise InvalidInput(f"messages[{last}].role", "ROLE_USER or ROLE_TOOL for the last message", name)
    return written


def flatten(request: pb.GenerateRequest) -> None:
    """Give every message its parts' text as content, and the request their pictures and recording. In place."""
    for message in request.messages:
        if not message.parts:
            continue
        text = separator(message.parts).join(part.text for part in message.parts if part.text)
        _take_media(request, message)
        message.content = NO_TEXT if message.pictures and not text.strip() else text
        del message.parts[:]
    if request.messages and not request.messages[-1].content and request.messages[-1].role == chat_pb2.ROLE_USER:
        del request.messages[-1]  # the recording is the question


def _take_media(request: pb.GenerateRequest, message: chat_pb2.Message) -> None:
    """Give the request the pictures and the recording of a message's parts, and the message the places of its pictures
    in the text that its parts become."""
    del message.pictures[:]
    at, between, last = 0, len(separator(message.parts)), None
    for part in message.parts:
        match part.WhichOneof("kind"):
            case "image":
                last = message.pictures.add(index=len(request.images), begin=at, end=at)
                request.images.add(data=part.image)
            case "audio":
                request.audio.data = part.audio
            case "text" if part.text:
                if at and last:
                    last.end += between
                at += len(part.text) + (between if at else 0)
                last = None


def separator(parts: Iterable[chat_pb2.Part]) -> str:
    """What stands between the texts of these parts where they are one text."""
    return "\n" if any(part.WhichOneof("kind") in _MEDIA for part in parts) else ""


def _text_alone(message: chat_pb2.Message) -> str:
    """The text of a message that has no more than that, and is as it must be; empty for any other. A conversation may
    have 100,000."""
    text = message.content
    if text.isspace() or message.role not in _SPEAKING or message.parts or message.tool_calls or message.tool_call_id:
        return ""
    return text


def _check_counts(where: str, message: chat_pb2.Message) -> None:
    if len(message.parts) > PARTS:
        raise InvalidInput(f"{where}.parts", f"at most {PARTS}", len(message.parts))
    if len(message.tool_calls) > TOOL_CALLS:
        raise InvalidInput(f"{where}.tool_calls", f"at most {TOOL_CALLS}", len(message.tool_calls))


def _check_content(where: str, message: chat_pb2.Message) -> None:
    if message.parts:
        if message.content:
            raise InvalidInput(f"{where}.parts", "none together with content", len(message.parts))
    elif not (message.content.strip() or message.tool_calls or message.role in _MAY_BE_EMPTY):
        raise InvalidInput(f"{where}.content", "text that is not blank", repr(message.content))


def _check_parts(where: str, message: chat_pb2.Message, *, last: bool) -> None:
    """Something is said or shown in them, and pictures and recordings are the user's. A recording is the last thing
    said."""
    kinds = [part.WhichOneof("kind") for part in message.parts]
    for number, (part, kind) in enumerate(zip(message.parts, kinds, strict=True)):
        place = f"{where}.parts[{number}]"
        if kind is None:
            raise InvalidInput(place, "text, image or audio", "nothing")
        if kind in _MEDIA and message.role != chat_pb2.ROLE_USER:
            raise InvalidInput(place, f"{kind} only in messages of the user", chat_pb2.Role.Name(message.role))
        if kind == "audio" and (not last or kinds.count("audio") > 1):
            raise InvalidInput(place, "one recording, in the last message", "another")
        if kind in _MEDIA and not getattr(part, kind):
            raise InvalidInput(f"{place}.{kind}", "1 or more bytes", 0)
    blank = set(kinds) == {"text"} and not any(part.text.strip() for part in message.parts)
    if blank and message.role != chat_pb2.ROLE_TOOL:
        raise InvalidInput(f"{where}.parts", "text that is not blank, a picture or a recording", "blank text")


def _check_calls(where: str, message: chat_pb2.Message, called: set[str]) -> None:
    """The assistant calls tools by name, and every result is of a call before it."""
    if message.tool_calls and message.role != chat_pb2.ROLE_ASSISTANT:
        raise InvalidInput(f"{where}.tool_calls", "only in messages of the assistant", chat_pb2.Role.Name(message.role))
    for number, call in enumerate(message.tool_calls):
        for field in ("id", "name"):
            if not getattr(call, field):
                raise InvalidInput(f"{where}.tool_calls[{number}].{field}", "1 or more characters", 0)
    if message.role == chat_pb2.ROLE_TOOL and message.tool_call_id not in called:
        raise InvalidInput(f"{where}.tool_call_id", "the id of a call before it", repr(message.tool_call_id))
    if message.role != chat_pb2.ROLE_TOOL and message.tool_call_id:
        raise InvalidInput(f"{where}.tool_call_id", "none outside of ROLE_TOOL", message.tool_call_id)
