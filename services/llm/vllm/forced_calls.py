"""Calls that must be made, by constrained decoding: the JSON Schema that the whole answer matches, and what it says.

In the form that vLLM's own server has: the arguments alone where the tool is named, else a list of calls.
"""

from __future__ import annotations

import json
import re
from typing import Any

from services.llm.answer import new_id
from services.llm.engine import Constraint, Request, Tool, ToolCallDelta
from services.llm.validation import read_schema

_HEAD = re.compile(r'"name"\s*:\s*"([^"]*)"\s*,\s*"(?:parameters|arguments)"\s*:\s*(?=\S)')
# llguidance's word for spaces as Python's JSON has them: where any may stand, a small model may write them without end.
SPACED = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
_LONGEST_HEAD = 256  # characters: a name has 64 at most, and a model that is held to no form may write anything
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def constraint(request: Request) -> Constraint:
    """The constraint on the answer to a request that forces a call."""
    if request.tool_choice.mode == "named":
        (tool,) = (tool for tool in request.tools if tool.name == request.tool_choice.name)
        return Constraint("json_schema", json.dumps({**parameters(tool), **SPACED}), field="tools")
    calls = {
        "type": "array",
        "minItems": 1,
        **({} if request.parallel_tool_calls else {"maxItems": 1}),
        "items": {"anyOf": [_call(tool) for tool in request.tools]},
        # A schema's references lead to places in itself, which is elsewhere now.
        **SPACED,
        "$defs": {tool.name: _moved(parameters(tool), f"#/$defs/{tool.name}") for tool in request.tools},
    }
    return Constraint("json_schema", json.dumps(calls), field="tools")


def parameters(tool: Tool) -> dict[str, Any]:
    """The schema of its arguments."""
    return read_schema(tool.parameters, "tools") if tool.parameters else _NO_ARGUMENTS


def _call(tool: Tool) -> dict[str, Any]:
    properties = {"name": {"const": tool.name}, "parameters": {"$ref": f"#/$defs/{tool.name}"}}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _moved(schema: Any, place: str) -> Any:
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: f"{place}{value[1:]}" if _is_reference(name, value) else _moved(value, place)
        for name, value in schema.items()
    }


def _is_reference(name: str, value: Any) -> bool:
    return name == "$ref" and isinstance(value, str) and value.startswith("#")


class NamedCall:
    """Reads arguments, which are all of the answer."""

    def __init__(self, name: str):
        self._name = name

    def read(self, text: str) -> list[ToolCallDelta]:
        name, self._name = self._name, ""
        if name:
            return [ToolCallDelta(0, new_id(), name, text)]
        return [ToolCallDelta(0, arguments=text)] if text else []


class ListedCalls:
    """Reads a list of calls, in time that is linear in its length."""

    def __init__(self) -> None:
        self._index = -1
        self._head = ""  # what stands before arguments, as far as it is there
        self._value: _Value | None = None  # the arguments that are being read

    def read(self, text: str) -> list[ToolCallDelta]:
        deltas: list[ToolCallDelta] = []
        at = 0
        if self._value is None:
            text, self._head = self._head + text, ""
        while at < len(text):
            if self._value is None:
                found = _HEAD.search(text, at)
                if not found:
                    self._head = text[at:][-_LONGEST_HEAD:]
                    break
                at = found.end()
                self._value, self._index = _Value(), self._index + 1
                deltas.append(ToolCallDelta(self._index, new_id(), found[1]))
            end = self._value.more(text, at)
            deltas.append(ToolCallDelta(self._index, arguments=text[at:end]))
            at = end
            if self._value.ended:
                self._value = None
        return [delta for delta in deltas if delta.id or delta.arguments]


class _Value:
    """Finds the end of a JSON value."""

    def __init__(self) -> None:
        self.ended = False
        self._depth, self._in_string, self._escaped, self._begun = 0, False, False, False

    def more(self, text: str, at: int = 0) -> int:
        """The end of the value in `text` that begins or continues at `at`; the text's end if it continues."""
        for place in range(at, len(text)):
            character = text[place]
            if self._in_string:
                self._string(character)
                if not self._in_string and not self._depth:
                    return self._end(place + 1)
                continue
            if not self._depth and self._begun and character in ",}] \t\r\n":  # behind a number or a word
                return self._end(place)
            self._begun = True
            if character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if not self._depth:
                    return self._end(place + 1)
        return len(text)

    def _string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False

    def _end(self, place: int) -> int:
        self.ended = True
        return place
