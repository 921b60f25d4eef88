"""The limits of a request's options, by the table of options."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.request_options import Kind, RequestOption
from hedgerow.request_options.fields import field_of
from hedgerow.request_options.table import OPTIONS
from services.runtime.errors import InvalidInput

_Check = Callable[[Any], None]  # of the message that holds the field


def check_options(request: pb.GenerateRequest) -> None:
    """Raise `InvalidInput` for the first option of `request` that is outside its limits."""
    for path, checks in _CHECKS.items():
        if path and not request.HasField(path):
            continue
        message = getattr(request, path) if path else request
        for check in checks:
            check(message)


def _number(option: RequestOption, field: FieldDescriptor) -> _Check:
    name, optional = field.name, field.has_presence

    def check(message: Any) -> None:
        if optional and not message.HasField(name):
            return
        value = getattr(message, name)
        if not option.admits(value):
            raise InvalidInput(option.place, option.limit, value if isinstance(value, int) else f"{value:g}")

    return check


def _word(option: RequestOption, name: str, enum: EnumDescriptor) -> _Check:
    known, limit = frozenset(enum.values_by_number), _values(enum, least=0)

    def check(message: Any) -> None:
        if (value := getattr(message, name)) not in known:
            raise InvalidInput(option.place, limit, value)

    return check


def _words(option: RequestOption, name: str, enum: EnumDescriptor) -> _Check:
    known, limit = frozenset(enum.values_by_number) - {0}, _values(enum, least=1)

    def check(message: Any) -> None:
        for index, value in enumerate(getattr(message, name)):
            if value not in known:
                raise InvalidInput(f"{option.place}[{index}]", limit, value)

    return check


def _values(enum: EnumDescriptor, least: int) -> str:
    return f"{'an' if enum.name[0] in 'AEIOU' else 'a'} {enum.name}, {least} to {max(enum.values_by_number)}"


def _check(option: RequestOption) -> _Check | None:
    field = field_of(option)
    if option.limit:
        return _number(option, field)
    if field.enum_type is None:
        return None
    check = _word if option.kind is Kind.WORD else _words
    return check(option, field.name, field.enum_type)


def _checks() -> Mapping[str, list[_Check]]:
    """The checks by the message that has the field; the request itself has an empty path."""
    found = defaultdict[str, list[_Check]](list)
    for option in OPTIONS:
        if option.place and (check := _check(option)):
            found[option.place.rpartition(".")[0]].append(check)
    return found


_CHECKS = _checks()
