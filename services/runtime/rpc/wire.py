"""Counts the elements of a message on the wire before protobuf makes objects of them: 4 MiB of empty messages, two
bytes each, would become 160 MiB.

A message of n bytes has at most n/2 fields, so most messages need no count. In any other message each field is skipped,
or entered if it is a message, until a limit is reached: from the 4,096th field on outside of the event loop, because
200,000 fields take 0.1 s. protobuf parses 100,000 messages in 5 ms, so parsing stays on the loop. Source: the wire
format, https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from services.runtime.aside import aside
from services.runtime.errors import InvalidInput

_LEAST_BYTES = 2  # of a field
_STRIDE = 4_096  # fields, which take some 2 ms
_SIZE = 2  # of a byte, as for `aside`
_DEPTH = 16  # no message of ours nests deeper
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5  # the kinds of fields on the wire; groups are obsolete
_CONTINUED = bytes(range(128, 256))  # all bytes of a number but its last
_KINDS = {
    FieldDescriptor.TYPE_STRING: _SIZED,
    FieldDescriptor.TYPE_BYTES: _SIZED,
    FieldDescriptor.TYPE_MESSAGE: _SIZED,
    FieldDescriptor.TYPE_FIXED32: _FIXED32,
    FieldDescriptor.TYPE_SFIXED32: _FIXED32,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    FieldDescriptor.TYPE_FIXED64: _FIXED64,
    FieldDescriptor.TYPE_SFIXED64: _FIXED64,
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
}
_BYTES = {_FIXED32: 4, _FIXED64: 8}
Most = Callable[[FieldDescriptor], int]  # elements of a repeated field


class _Field(NamedTuple):
    """A field of a type of messages. `most`: how often it may occur. `inside`: the fields of its message type.
    `packed`: the kind of number in a packed list. `numbered`: whether it is repeated."""

    name: str
    most: int
    inside: _Fields | None = None
    packed: int | None = None
    numbered: bool = False


_Fields = dict[int, _Field]  # by number and kind, as on the wire


@dataclass(slots=True)
class _Level:
    """A message that is being read, up to `end`."""

    fields: _Fields
    end: int
    counts: dict[int, int] = field(default_factory=dict)
    tag: int = 0  # of the field that the next level is in


class Counted:
    """The limits of a type of messages. `most` returns the limit of a repeated field; `items` limits how often any
    other field may occur, `values` all fields together."""

    def __init__(self, descriptor: Any, most: Most, items: int, values: int):
        self._name, self._items, self._values = descriptor.full_name, items, values
        self._fields = _fields(descriptor, most, items, {})
        self._few_bytes = _LEAST_BYTES * min(items, values)

    async def check(self, raw: bytes, tenant: str = "") -> None:
        """Raise `InvalidInput` for a message that exceeds a limit, and for bytes that are no message. `tenant`: of the
        caller."""
        if len(raw) > self._few_bytes:
            strides = self._strides(raw)
            for _ in islice(strides, 1):
                await aside(tenant, _SIZE * len(raw), partial(deque, strides, 0))

    def _strides(self, raw: bytes) -> Iterator[None]:
        """Check `raw`, with a yield after each `_STRIDE` fields."""
        level, above, at, left = _Level(self._fields, len(raw)), list[_Level](), 0, self._values
        unknown = _Field("", self._items)
        try:
            while True:
                while at < level.end:
                    left -= 1
                    if not (self._values - left) % _STRIDE:
                        yield
                    tag, size, at = raw[at], raw[at + 1], at + 2
                    if tag > 127 or size > 127 or tag & 7 != _SIZED:
                        tag, size, at = _header(raw, at - 2)
                    name, most, inside, packed, _ = level.fields.get(tag) or unknown
                    number = 1 if packed is None else _numbers(raw, at, size, packed)
                    level.counts[tag] = count = level.counts.get(tag, 0) + number
                    if count > most or left < 0 or len(above) > _DEPTH:
                        raise self._refusal([*above, level], tag, name, most, left)
                    if inside is None or at + size > level.end:
                        at += size
                    else:
                        level.tag = tag
                        above.append(level)
                        level = _Level(inside, at + size)
                if at > level.end:
                    raise IndexError
                if not above:
                    return
                level = above.pop()
        except IndexError:  # a truncated field
            raise InvalidInput(self._name, "a well-formed message", f"{len(raw)} bytes") from None

    def _refusal(self, levels: list[_Level], tag: int, name: str, most: int, left: int) -> InvalidInput:
        if left < 0:
            return InvalidInput("request", f"at most {self._values} fields", f"{self._values + 1} or more")
        path = "".join(f"{_place(level)}." for level in levels[:-1]) + (name or f"field {tag >> 3}")
        if (count := levels[-1].counts[tag]) > most:
            return InvalidInput(path, f"at most {most}", f"{count} or more")
        return InvalidInput(path, f"at most {_DEPTH} levels", f"{_DEPTH + 1} or more")


def _fields(descriptor: Any, most: Most, items: int, known: dict[str, _Fields]) -> _Fields:
    """The fields of a type of messages. `known`: those of types that were read before, because a type may contain
    itself."""
    if descriptor.full_name in known:
        return known[descriptor.full_name]
    fields = known[descriptor.full_name] = {}
    for each in descriptor.fields:
        kind, times = _KINDS.get(each.type, _VARINT), most(each) if each.is_repeated else items
        inside = _fields(each.message_type, most, items, known) if each.message_type else None
        fields[each.number << 3 | kind] = _Field(each.name, times, inside, numbered=each.is_repeated)
        if each.is_repeated and kind != _SIZED:
            fields[each.number << 3 | _SIZED] = _Field(each.name, times, packed=kind)
    return fields


def _number(raw: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and where it ends."""
    byte = raw[at]
    if byte < 128:
        return byte, at + 1
    number, shift = byte & 127, 7
    while (byte := raw[at := at + 1]) > 127:
        number, shift = number | (byte & 127) << shift, shift + 7
        if shift > 63:
            raise IndexError
    return number | byte << shift, at + 1


def _header(raw: bytes, at: int) -> tuple[int, int, int]:
    """The number and kind of the field at `at`, how many bytes it has, and where these begin."""
    tag, at = _number(raw, at)
    match tag & 7:
        case 2:
            return tag, *_number(raw, at)
        case 0:
            return tag, 0, _number(raw, at)[1]
        case kind if kind in _BYTES:
            return tag, _BYTES[kind], at
    raise IndexError


def _numbers(raw: bytes, at: int, size: int, kind: int) -> int:
    """How many numbers of that kind a list of `size` bytes has."""
    return size // _BYTES[kind] if kind else len(raw[at : at + size].translate(None, _CONTINUED))


def _place(level: _Level) -> str:
    """The element that the next level is in."""
    field = level.fields[level.tag]
    return f"{field.name}[{level.counts[level.tag] - 1}]" if field.numbered else field.name
