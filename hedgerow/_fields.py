"""Values to fields of protos. A value that a field cannot hold is refused under the caller's name for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as Proto

from hedgerow._errors import InvalidArgument, invalid

_WANTED = {
    FieldDescriptor.CPPTYPE_BOOL: "true or false",
    FieldDescriptor.CPPTYPE_DOUBLE: "a number",
    FieldDescriptor.CPPTYPE_FLOAT: "a number",
    FieldDescriptor.CPPTYPE_STRING: "a text",
}


def one_of(name: str, value: str, allowed: Collection[str]) -> str:
    """A word that is allowed. Raises `InvalidArgument` for another one."""
    if not isinstance(value, str) or value not in allowed:
        *most, last = allowed
        raise invalid(name, f"{', '.join(most)} or {last}", value)
    return value


def set_fields(message: Proto, path: str, **values: object) -> None:
    """Set what is not None. Errors name a field by `path` and its own name."""
    for field, value in values.items():
        if value is not None:
            set_field(message, field, f"{path}{field}", value)


def set_field(message: Proto, field: str, name: str, value: object) -> None:
    """Set one field, which errors call `name`."""
    with refusing(name):
        try:
            setattr(message, field, value)
        except TypeError:
            setattr(message, field, _fitted(message, field, name, value))


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Refuses what a field cannot hold: a number too large, broken UTF-8, a value of another type."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{name}: {error}", reason="INVALID_INPUT", metadata={"field": name}) from None


def _fitted(message: Proto, field: str, name: str, value: object) -> Any:
    """A value that a field did not take, in the field's own type: a whole float as a number, milliseconds rounded.
    Raises `InvalidArgument`."""
    wanted = _WANTED.get(message.DESCRIPTOR.fields_by_name[field].cpp_type, "a whole number")
    if wanted == "a whole number" and isinstance(value, float) and (value.is_integer() or field.endswith("_ms")):
        return round(value)
    raise invalid(name, wanted, repr(value))
