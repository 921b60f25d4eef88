"""What callers give in the shapes that chat APIs share: turns and tools as mappings, whole numbers as floats. An option
that does not exist is refused with the nearest one that does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hedgerow._errors import InvalidArgument, invalid
from hedgerow._options import Message, Messages, Request
from hedgerow._shapes import schema_of
from hedgerow._tools import Tool, ToolCall

_TURN = ("role", "content", "tool_calls", "tool_call_id")
_TURN_ALSO = ("name", "refusal", "annotations", "audio", "function_call")  # of OpenAI's turns; may be there when empty
_TOOL = ("name", "description", "parameters", "strict")


def refuse_unknown(where: str, given: Iterable[str], also: Sequence[str] = ()) -> None:
    """Raise `InvalidArgument` for the first option that does not exist. `where`: `ask()`, or an item of a batch.
    `also`: keywords of the methods that are no part of a request."""
    for name in given:
        if name not in Request.__annotations__:
            nearest = get_close_matches(name, [*Request.__annotations__, *also], 1)
            hint = f"did you mean {nearest[0]}?" if nearest else "docs/sdk.md lists them"
            message = f"{where}: no option {name}; {'ask() has it' if name in also else hint}"
            metadata = {"field": name, **({"nearest": nearest[0]} if nearest else {})}
            raise InvalidArgument(message, reason="INVALID_INPUT", metadata=metadata)


def turns_of(messages: Messages | Message | Mapping[str, Any]) -> list[Message]:
    """A conversation, in whichever shape it came."""
    if isinstance(messages, str):
        return [Message("user", messages)]
    if isinstance(messages, Message | Mapping):
        messages = [messages]
    if not isinstance(messages, Iterable):
        raise invalid("messages", "a text or a sequence of turns", messages)
    return [_turn(f"messages[{index}]", each) for index, each in enumerate(messages)]


def _turn(where: str, given: Any) -> Message:
    if isinstance(given, Message):
        return given
    if isinstance(given, str):
        raise invalid(where, "a Message, or a mapping with role and content", repr(given))
    if not isinstance(given, Mapping):
        raise invalid(where, "a Message, or a mapping with role and content", type(given).__name__)
    _refuse_keys(where, [name for name in given if name not in _TURN_ALSO or given[name]], _TURN)
    if "role" not in given:
        raise invalid(f"{where}.role", "system, user, assistant or tool", "none")
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, Sequence):
        raise invalid(f"{where}.tool_calls", "a sequence of calls", type(calls).__name__)
    return Message(
        role=given["role"],
        content=_text(f"{where}.content", given.get("content")),
        tool_calls=[_call(f"{where}.tool_calls[{index}]", each) for index, each in enumerate(calls)],
        tool_call_id=given.get("tool_call_id") or "",
    )


def _text(where: str, given: Any) -> str:
    """A text, or the texts of OpenAI's parts."""
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, Sequence):
        raise invalid(where, "a text", type(given).__name__)
    return "".join(_parts(where, given))


def _parts(where: str, given: Sequence[Any]) -> Iterator[str]:
    for index, part in enumerate(given):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        if kind != "text":
            raise invalid(f"{where}[{index}]", "a part of type text", kind, "pictures are images=, recordings audio=")
        if not isinstance(text := part.get("text"), str):
            raise invalid(f"{where}[{index}].text", "a text", type(text).__name__)
        yield text


def _call(where: str, given: Any) -> ToolCall:
    if isinstance(given, ToolCall):
        return given
    if not isinstance(given, Mapping):
        raise invalid(where, "a ToolCall, or a mapping with id and function", type(given).__name__)
    named = given.get("function", given)
    if not isinstance(named, Mapping):
        raise invalid(f"{where}.function", "a mapping with name and arguments", type(named).__name__)
    return ToolCall(given.get("id", ""), named.get("name", ""), named.get("arguments", ""))


def tool_of(where: str, given: Any) -> Tool:
    """A tool: as it is, of a function, or of a mapping as chat APIs have it."""
    if isinstance(given, Tool):
        return given
    if callable(given):
        return Tool.from_function(given)
    if not isinstance(given, Mapping):
        raise invalid(where, "a Tool, a function or a mapping with name and parameters", type(given).__name__)
    named = given["function"] if isinstance(given.get("function"), Mapping) else given
    _refuse_keys(where, [name for name in named if name != "type"], _TOOL)
    if not isinstance(named.get("name"), str):
        raise invalid(f"{where}.name", "a text", named.get("name"))
    fields = {name: value for name, value in named.items() if name in _TOOL and value is not None}
    return Tool(**fields)


def mapping_of(field: str, given: Any) -> Mapping[Any, Any]:
    """A mapping as it is."""
    if not isinstance(given, Mapping):
        raise invalid(field, "a mapping", type(given).__name__)
    return given


def schema_text(field: str, given: Any) -> str | None:
    """A JSON Schema as text: as it is, of a mapping, or of a dataclass or a pydantic model."""
    if given is None or isinstance(given, str):
        return given
    try:
        return json.dumps(given if isinstance(given, Mapping) else schema_of(given))
    except (TypeError, ValueError) as error:
        raise invalid(field, "a JSON Schema as text or mapping, or a class that has one", error) from None


def _refuse_keys(where: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            nearest = get_close_matches(name, known, 1)
            raise invalid(where, f"some of {', '.join(known)}", name, f"did you mean {nearest[0]}?" if nearest else "")
