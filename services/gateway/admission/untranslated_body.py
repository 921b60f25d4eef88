"""The check of a body that goes to a provider in its caller's own words, and that nothing here translates.

A body may have a million values, so the check works in steps, between which the event loop runs.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission import provider
from services.gateway.settings.permissions import is_named
from services.runtime.errors import InvalidInput

VALUES_A_STEP = 256
MOST_OBJECTS = 10_000  # of a body, outside of other objects: 0.1 ms each
MOST_VALUES = 4_096  # of one object, or of a field that a permission names: 50 ms


def check(fields: Mapping[str, Any], permitted: Sequence[str], tenant: str) -> Generator[None, None, None]:
    """Raise `FieldDenied` as `provider.check` does, for the fields and for every object in them, whatever arrays the
    object is in. Raises `InvalidInput` for more values than can be checked."""
    values = objects = 0
    for name, given in fields.items():
        if given is not None and is_named(name):
            _check_one(name, name, given, permitted, tenant)
        for each in _elements(given):
            values += 1
            if isinstance(each, dict):
                objects += 1
                if objects > MOST_OBJECTS:
                    raise InvalidInput(name, f"at most {MOST_OBJECTS} objects in a request", "more")
                _check_one(name, f"{name}[0]", each, permitted, tenant)
            if isinstance(each, dict) or values % VALUES_A_STEP == 0:
                yield


def values_of(given: Any) -> Iterator[Any]:
    """Every value in a value of JSON, objects and arrays included."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


def _check_one(name: str, place: str, given: Any, permitted: Sequence[str], tenant: str) -> None:
    for values, _ in enumerate(values_of(given)):
        if values > MOST_VALUES:
            raise InvalidInput(name, f"at most {MOST_VALUES} values in one object, or in this field", "more")
    provider.check(chat_pb2.Original(untranslated={place: json.dumps(given, separators=(",", ":"))}), permitted, tenant)


def _elements(given: Any) -> Iterator[Any]:
    """The value, and the elements of the arrays in it, but nothing of what is in an object."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, list):
            waiting += each
