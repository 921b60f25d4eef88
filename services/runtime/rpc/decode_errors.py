"""Why bytes are not a message: finds the field at fault, so that INVALID_ARGUMENT can name it.

protobuf itself says only that parsing failed. A message beyond 32 KiB is not searched, because 100,000 fields take the
event loop 0.2 s: its error names the message alone.
Source: the wire format, https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from services.runtime.errors import InvalidInput

_LENGTH_DELIMITED = 2
_DEPTH = 16  # no message of ours nests deeper
_LONGEST = 32_768  # bytes: 20 ms at most
M = TypeVar("M", bound=Message)


def parser(cls: type[M]) -> Callable[[bytes], M]:
    """A function that parses `cls`, and names the invalid field if it cannot."""

    def parse(raw: bytes) -> M:
        try:
            return cls.FromString(raw)
        except DecodeError:
            field, problem = explain(cls.DESCRIPTOR, raw)
            raise InvalidInput(field, problem, f"{len(raw)} bytes") from None

    return parse


def explain(descriptor: Any, raw: bytes) -> tuple[str, str]:
    """(field path, what it must be) for `raw`, which does not parse as the message type `descriptor`."""
    if len(raw) > _LONGEST:
        return descriptor.full_name, "a well-formed message with valid UTF-8"
    return _find(descriptor, raw, "", _DEPTH) or (descriptor.full_name, "a well-formed message")


def _find(descriptor: Any, raw: bytes, path: str, depth: int) -> tuple[str, str] | None:
    try:
        unknown = UnknownFieldSet(Empty.FromString(raw))  # every field of an empty message is unknown
    except DecodeError:
        return path.rstrip(".") or descriptor.full_name, "a well-formed message"
    seen: dict[int, int] = {}
    for item in unknown:  # type: ignore[attr-defined]
        field = descriptor.fields_by_number.get(item.field_number)
        if field is None or item.wire_type != _LENGTH_DELIMITED:
            continue
        index = seen[field.number] = seen.get(field.number, -1) + 1
        name = f"{path}{field.name}{f'[{index}]' if field.is_repeated else ''}"
        if field.type == FieldDescriptor.TYPE_STRING and not _is_utf8(item.data):
            return name, "valid UTF-8"
        if field.message_type is not None and depth:
            found = _find(field.message_type, item.data, f"{name}.", depth - 1)
            if found:
                return found
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
