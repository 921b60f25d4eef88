"""The input of OpenAI's Responses as a conversation: items that the gateway's contract has a place for, and others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.chat_request import ROLES
from services.gateway.http.fields import Fields
from services.gateway.http.parts import read_part
from services.runtime.errors import InvalidInput

_TEXTS = ("input_text", "output_text", "text", "refusal")
_REASONING = "reasoning"
_NOTHING = "…"  # stands where an item or a part has no text
# No text of these is anybody's words: names, addresses, and what is not to be read.
_NOT_WORDS = frozenset(
    {
        "call_id",
        "detail",
        "encrypted_content",
        "file_data",
        "file_id",
        "file_url",
        "id",
        "image_url",
        "result",
        "role",
        "status",
        "type",
    }
)
_MOST_WITHOUT_BLANK = 1_024  # characters: what is longer is data


def take_input(request: pb.GenerateRequest, body: Fields, most_messages: int) -> None:
    """Add the messages that `input` says, `most_messages` at most. Raises `InvalidInput`."""
    if isinstance(body.seen("input"), str):
        request.messages.add(role=chat_pb2.ROLE_USER, content=body.needed("input"))
        return
    if "input" not in body:
        raise body.wrong("input", "a string or an array")
    items = body.objects("input")
    asking = [index for index, item in enumerate(items) if item.seen("type") != _REASONING]
    called = set[str]()
    for index, item in enumerate(items):
        if len(request.messages) > most_messages:
            raise InvalidInput("messages", f"at most {most_messages}", f"{len(items)} items")
        last = bool(asking) and index == asking[-1]
        if not _take_item(request, item, called, last=last):
            _stand_in(request, item)
    if not asking:
        request.messages.add(role=chat_pb2.ROLE_USER, content=_NOTHING)  # all of it is kept by the provider


def _take_item(request: pb.GenerateRequest, item: Fields, called: set[str], *, last: bool) -> bool:
    """Whether the contract has a place for it. The last one of a conversation there is a user's or a result; `called`
    are the calls so far, by their ids."""
    kind = item.seen("type")
    if kind is None or kind == "message":
        return _take_message(request, item, last=last)
    if kind == "function_call" and not last:
        item.needed("type")
        call = {name: item.needed(name) for name in ("name", "arguments")}
        _speaking(request).tool_calls.add(id=item.needed("call_id"), **call)
        called.add(item.needed("call_id"))
        return True
    if kind == "function_call_output" and _call_of(item) in called:
        item.needed("type")
        result = request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id=item.needed("call_id"))
        _put_content(result, item, "output", pictures=False)
        return True
    if kind == _REASONING:
        item.needed("type")  # what a model thought before is not for a model behind another API to read
        return True
    if not isinstance(kind, str):
        raise item.wrong("type", "a string")
    return False


def _call_of(item: Fields) -> str:
    if not isinstance(call_id := item.seen("call_id"), str):
        raise item.wrong("call_id", "a string")
    return call_id


def _take_message(request: pb.GenerateRequest, item: Fields, *, last: bool) -> bool:
    role = item.seen("role")
    if not isinstance(role, str) or role not in ROLES:
        raise item.wrong("role", f"one of {', '.join(ROLES)}")
    if last and ROLES[role] != chat_pb2.ROLE_USER:
        return False
    item.text("type")
    _put_content(request.messages.add(role=item.one_of("role", ROLES) or chat_pb2.ROLE_USER), item, "content")
    return True


def _put_content(message: chat_pb2.Message, given: Fields, name: str, *, pictures: bool = True) -> None:
    """A text, or parts. Text alone stays text; a part that has no place is left unread, and stands for a message that
    has no others."""
    if not isinstance(given.seen(name), list):
        message.content = given.text(name) or ""
        return
    given_parts = given.objects(name)
    parts = [read_part(part) for part in given_parts if _is_read(part, pictures=pictures)]
    if given_parts and not parts:
        message.content = "\n".join(map(_words, given_parts))
    elif all(part.WhichOneof("kind") == "text" for part in parts):
        message.content = "".join(part.text for part in parts)
    else:
        message.parts.extend(parts)


def _is_read(part: Fields, *, pictures: bool) -> bool:
    kind, url = part.seen("type"), part.seen("image_url")
    if kind in _TEXTS:
        return True
    if not isinstance(kind, str):
        raise part.wrong("type", "a string")
    inline = isinstance(url, str) and url[:5].lower() == "data:" and "file_id" not in part
    return pictures and (kind == "input_audio" or (kind == "input_image" and inline))


def _stand_in(request: pb.GenerateRequest, item: Fields) -> None:
    """What policies read in the place of an item that has none. No model gets it."""
    request.messages.add(role=chat_pb2.ROLE_USER, content=_words(item))


def _words(given: Fields) -> str:
    return "\n".join(text for name in given for text in _texts(name, given.seen(name))) or _NOTHING


def _texts(name: str, given: Any) -> Iterator[str]:
    if name in _NOT_WORDS:
        return
    if isinstance(given, str):
        if given.strip() and (len(given) <= _MOST_WITHOUT_BLANK or " " in given[:_MOST_WITHOUT_BLANK]):
            yield given
    elif isinstance(given, dict):
        for inner, value in given.items():
            yield from _texts(inner, value)
    elif isinstance(given, list):
        for value in given:
            yield from _texts("", value)


def _speaking(request: pb.GenerateRequest) -> chat_pb2.Message:
    """The assistant's turn that calls are a part of."""
    if request.messages and request.messages[-1].role == chat_pb2.ROLE_ASSISTANT:
        return request.messages[-1]
    return request.messages.add(role=chat_pb2.ROLE_ASSISTANT)
