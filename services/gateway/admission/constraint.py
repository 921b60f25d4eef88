"""The limits of a response format, and how much work a regular expression may cause, counted in one pass over its text.

An automaton has about as many states as the pattern has characters once its repetitions are written out. That number
is what is counted: `(a{9}b){9}` is 90. The dialect does not matter for the count, and the engine decides whether the
pattern is valid. The operand of a star is counted once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import count
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.settings.response_format import ConstraintSettings
from services.runtime import strict_json
from services.runtime.errors import InvalidInput

_REPEATED = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*+\]", re.DOTALL)
MOST_COUNTED = 10**9  # more than that is not counted
_SCHEMA, _REGEX = "response_format.json_schema", "response_format.regex"
_CHOICE, _GRAMMAR = "response_format.choice", "response_format.grammar"
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # schemas by name
_LISTED = ("enum", "anyOf", "oneOf", "allOf", "prefixItems", "items", "type", "examples")
_COUNTED = ("minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains", "multipleOf")
_LENGTHS = ("minLength", "maxLength")
_DATA = ("const", "enum", "default", "examples")  # any JSON: nothing in there is a keyword
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_REMEMBERED = 128  # of the formats that came last: at most 4 MiB


def pattern_size(pattern: str) -> int:
    """The characters of `pattern`, its repetitions written out."""
    outer: list[int] = []  # what each open group's surroundings have
    total = last = at = 0  # `last`: of the total, what a count that follows would repeat
    while at < len(pattern):
        character, step, counts = pattern[at], 1, None
        if character == "(":
            outer.append(total)
            total = last = 0
        elif character == ")":
            last = max(total, 1)
            total = last + (outer.pop() if outer else 0)
        elif character == "{" and (counts := _REPEATED.match(pattern, at)):
            step = counts.end() - at
            more = min(last * (_most(counts) - 1), MOST_COUNTED)
            total, last = total + more, last + more
        elif character not in "*+?":
            step = _length(pattern, at)
            total, last = total + 1, 1
        at += step
    return min(total + sum(outer), MOST_COUNTED)


def _length(pattern: str, at: int) -> int:
    """The length of the character, escape or class at `at`."""
    if pattern[at] == "\\":
        return 2
    if pattern[at] != "[":
        return 1
    closed = _CLASS.match(pattern, at)
    return (closed.end() if closed else len(pattern)) - at


def _most(counts: re.Match[str]) -> int:
    """The larger of a repetition's counts, at least 1."""
    given = [count for count in counts.groups() if count]
    return max((int(count) if len(count) < len(str(MOST_COUNTED)) else MOST_COUNTED for count in given), default=1) or 1


def is_checked(request: pb.GenerateRequest, checks: bool) -> bool:
    """Whether the answer is compared with the response format. `checks`: the default of the tenant or the gateway, for
    a request that does not set `repair`."""
    return request.HasField("response_format") and (checks or request.HasField("repair"))


def check(wanted: chat_pb2.ResponseFormat, limits: ConstraintSettings) -> None:
    """Raise `InvalidInput` for a response format that could be too much work, or that is none."""
    match wanted.WhichOneof("constraint"):
        case "json_schema":
            check_schema(_SCHEMA, wanted.json_schema, limits)
        case "regex":
            _check_regex(wanted.regex, limits)
        case "choice":
            _check_choice(wanted.choice.values, limits)
        case "grammar":
            _check_bytes(_GRAMMAR, wanted.grammar, limits.max_grammar_bytes)
            _check_written(_GRAMMAR, wanted.grammar)


def check_schema(field: str, text: str, limits: ConstraintSettings) -> None:
    """Raise `InvalidInput`, which names `field`, for a JSON Schema that could be too much work, or that is none."""
    _check_bytes(field, text, limits.max_bytes)
    _check_schema(field, text, limits)


def _check_regex(text: str, limits: ConstraintSettings) -> None:
    _check_bytes(_REGEX, text, limits.max_pattern_bytes)
    _check_written(_REGEX, text)
    if (size := pattern_size(text)) > limits.max_repetition:
        raise InvalidInput(_REGEX, f"at most {limits.max_repetition} characters with its repetitions written out", size)


def _check_written(field: str, text: str) -> None:
    if not text or "\0" in text:
        raise InvalidInput(field, "1 or more characters, none of them NUL", repr(text))


def _check_choice(values: Sequence[str], limits: ConstraintSettings) -> None:
    if not 1 <= len(values) <= limits.max_alternatives:
        raise InvalidInput(_CHOICE, f"1 to {limits.max_alternatives} texts", len(values))
    _check_bytes(_CHOICE, "".join(values), limits.max_bytes)
    for index, value in enumerate(values):
        _check_written(f"{_CHOICE}[{index}]", value)
    if len(different := set(values)) < len(values):
        raise InvalidInput(_CHOICE, "each text once", f"{len(values)}, of which {len(different)} are different")


@lru_cache(maxsize=_REMEMBERED)
def _check_schema(field: str, text: str, limits: ConstraintSettings) -> None:
    try:
        schema = strict_json.loads(text)
    except ValueError as error:
        raise InvalidInput(field, f"JSON ({error})", text) from None
    if not isinstance(schema, dict):
        raise InvalidInput(field, "a JSON object", type(schema).__name__)
    _Count(field, limits).schema(schema)


class _Count:
    """Counts the parts of a schema that cost an engine time."""

    def __init__(self, field: str, limits: ConstraintSettings):
        self._field, self._limits = field, limits
        self._properties = self._alternatives = self._repetition = self._patterns = 0

    def schema(self, schema: dict[str, Any]) -> None:
        """Raise `InvalidInput` for the first thing that is too much. No recursion: the depth is the caller's choice."""
        nodes: list[tuple[Any, int, bool]] = [(schema, 1, True)]
        for seen in count(1):
            if not nodes:
                return
            if seen > self._limits.max_nodes:
                raise InvalidInput(
                    self._field, f"at most {self._limits.max_nodes} objects and arrays altogether", "more"
                )
            node, depth, is_schema = nodes.pop()
            if depth > self._limits.max_depth:
                raise InvalidInput(
                    self._field, f"at most {self._limits.max_depth} levels of objects and arrays", "more"
                )
            if is_schema and isinstance(node, dict):
                self._keywords(node)
            nodes.extend((inner, depth + more, means) for inner, more, means in _inside(node, is_schema))

    def _keywords(self, schema: dict[str, Any]) -> None:
        for name, value in schema.items():
            if isinstance(value, dict) and name in _NAMED:
                self._add("properties", len(value))
                if name == "patternProperties":
                    for text in value:
                        self._pattern(name, text)
            elif isinstance(value, list) and name in _LISTED:
                self._add("alternatives", len(value))
            elif type(value) in (int, float) and name in _COUNTED:
                self._add("repetition", _times(value))
            elif type(value) in (int, float) and name in _LENGTHS and value > self._limits.max_length:
                raise InvalidInput(self._field, f"{name}: at most {self._limits.max_length}", _times(value))
            elif isinstance(value, str) and name == "pattern":
                self._pattern(name, value)
            elif isinstance(value, str) and name in _REFERENCES and not value.startswith("#"):
                raise InvalidInput(self._field, f"{name}: to a place in the schema itself, #/…", value)

    def _pattern(self, name: str, text: str) -> None:
        _check_bytes(f"{self._field}: {name}", text, self._limits.max_pattern_bytes)
        self._add("patterns", 1)
        self._add("repetition", pattern_size(text))

    def _add(self, what: str, count: int) -> None:
        total = getattr(self, f"_{what}") + count
        setattr(self, f"_{what}", total)
        most = getattr(self._limits, f"max_{what}")
        if total > most:
            raise InvalidInput(self._field, f"{what}: at most {most} altogether", f"{total} or more")


def _inside(node: Any, is_schema: bool) -> Iterator[tuple[Any, int, bool]]:
    """The objects and arrays in `node`, how much deeper each is, and whether there are keywords in it."""
    if isinstance(node, list):
        yield from ((inner, 1, is_schema) for inner in node if isinstance(inner, dict | list))
        return
    for name, value in node.items():
        if is_schema and name in _NAMED and isinstance(value, dict):
            yield from ((inner, 2, True) for inner in value.values() if isinstance(inner, dict | list))
        elif isinstance(value, dict | list):
            yield value, 1, is_schema and name not in _DATA


def _times(value: float) -> int:
    """How often a keyword's number makes an engine repeat something. Of a fraction its digits count."""
    digits = "".join(map(str, Decimal(repr(value)).as_tuple().digits[: len(str(MOST_COUNTED))]))
    return min(max(int(abs(value)), int(digits)), MOST_COUNTED)


def _check_bytes(field: str, text: str, most: int) -> None:
    if (size := len(text.encode())) > most:
        raise InvalidInput(field, f"at most {most} bytes", f"{size} bytes")
