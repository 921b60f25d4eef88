"""Checks permissions for fields with which a provider does more than answer.

`check` reads the fields that a translated request leaves to its provider, `check_body` a body that is forwarded without
translation. Such a body may have a million values, so its check works in steps, between which the event loop runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.errors import FieldDenied
from services.gateway.guard.checks import Checks
from services.gateway.settings.permissions import BEYOND, is_named, needed, texts
from services.runtime.errors import InvalidInput, shorten
from services.runtime.strict_json import compact

_NOT_LOOKED_AT = frozenset({"audio", "modalities", "n"})
_PICTURES = ("image", "image_url", "input_image")
_KINDS = ("type", "content.type")  # of a part, and of the parts of a message
_GO_ON = ("conversation", "previous_response_id")  # which continue data that a provider has stored
_STORE = "store"
_FIRST_FIELD = re.compile(rb'[ \t\r\n]*+{[ \t\r\n]*+"')  # an object that has any
VALUES_A_STEP = 256
MOST_OBJECTS = 10_000  # of a body, outside of other objects: 0.1 ms each
MOST_VALUES = 4_096  # of one object, or of a field that a permission names: 50 ms


def check(original: chat_pb2.Original, permitted: Sequence[str], tenant: str) -> None:
    """Raise `FieldDenied` for the first field, in the order of the table, that needs a permission which the tenant's
    setting `provider` lacks, or that no setting permits."""
    found = ((needed(place, given), place, given) for place, given in sorted(original.untranslated.items()))
    denied = [(each, place, given) for each, place, given in found if each and each.permission not in permitted]
    if denied:
        beyond, place, given = min(denied, key=lambda each: BEYOND.index(each[0]))
        if beyond.permission is None:  # the value may be a credential
            raise FieldDenied(f"{place}: {beyond.instead}; no setting permits it")
        raise FieldDenied(
            f"{place}: {beyond.instead} for tenant {shorten(tenant)}, got {shorten(given)}; "
            f"`provider: [{beyond.permission}]` in the tenant's settings permits it"
        )


def check_body(fields: Mapping[str, Any], permitted: Sequence[str], tenant: str) -> Generator[None, None, None]:
    """Raise `FieldDenied` as `check` does, for the fields and for every object in them, at any depth of arrays. Raises
    `InvalidInput` for more values than can be checked."""
    values = objects = 0
    for name, given in fields.items():
        if (usual := name.casefold()) != name and usual in fields:
            raise InvalidInput(name, f"{usual} in lower case", "upper case")
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
    check(chat_pb2.Original(untranslated={place: compact(given).decode()}), permitted, tenant)


def _elements(given: Any) -> Iterator[Any]:
    """The value, and the elements of its arrays at any depth, but not the members of objects."""
    waiting = [given]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, list):
            waiting += each


class NoneBeside(InvalidInput):
    """A field that a policy of this request cannot examine. The model may support it."""


def check_beside(request: pb.GenerateRequest, checks: Checks | None, *, form: bool) -> None:
    """Raise `NoneBeside` or `InvalidInput` for a field that a policy of the request or its tenant cannot examine.
    `form`: whether the answer's form is validated."""
    asked = request.original.untranslated
    beside = {
        "a guard of answers": bool(checks and checks.screens),
        "a check of the answer's form": form,
        "a cascade": request.HasField("cascade"),
        "mesh_tools": bool(request.mesh_tools),
    }
    for place, given in asked.items():
        for policy in (name for name, is_there in beside.items() if is_there and place in _NOT_LOOKED_AT):
            raise NoneBeside(place, f"none together with {policy}, which looks at one text", shorten(given))
        if checks and checks.asks and _is_unreadable(place, given):
            raise InvalidInput(place, "text, which the guard of requests can look through", shorten(given))


def refuse_left(original: chat_pb2.Original, stale: Collection[str], kept: Collection[str] = ()) -> None:
    """Raise `InvalidInput` for a part that would be lost because the fields `stale` are replaced. `kept`: the places of
    documents that the messages have."""
    for place, given in original.untranslated.items():
        if place.endswith("]") and place not in kept and re.split(r"[.\[]", place, maxsplit=1)[0] in stale:
            limit = "none where the gateway changes what is around it (guard, compression, system prompt, tools)"
            raise InvalidInput(place, limit, shorten(given))


def _is_unreadable(place: str, given: str) -> bool:
    """Whether a message or one of its parts is or contains a file or a recording, whose text the guard cannot read.
    Pictures are permitted."""
    if not place.endswith("]") or place.startswith("tools["):
        return False
    part = json.loads(given)
    if part.get("type") in _PICTURES:
        return False
    beyond = needed(place, given)
    encoded = any(
        (key.endswith("source.type") and text == "base64") or (key in _KINDS and text == "input_audio")
        for key, text in texts(part)
    )
    return encoded or (beyond is not None and beyond.permission == "files")


def settle_store(original: chat_pb2.Original, permitted: Sequence[str], tenant: str) -> None:
    """Set `store` to false if the tenant's setting `provider` lacks `store` and the request does not set it. Raises
    `FieldDenied` for a request that continues stored data, which could only be another tenant's."""
    if original.api != chat_pb2.API_RESPONSES or _STORE in permitted:
        return
    for field in _GO_ON:
        if given := original.untranslated.get(field):
            raise FieldDenied(
                f"{field}: none for tenant {shorten(tenant)}, got {shorten(given)}; "
                f"`provider: [{_STORE}]` in the tenant's settings permits it"
            )
    if _STORE not in original.untranslated:
        original.body = _with_store_off(original.body)
        original.untranslated[_STORE] = "false"


def _with_store_off(body: bytes) -> bytes:
    """The object with `store` false. It is parsed only if it may have that field, as null: 20 MB take 80 ms."""
    if b'"store"' in body or b"\\u00" in body or not _FIRST_FIELD.match(body):
        return compact({**json.loads(body), _STORE: False})
    return b"".join((b'{"store":false,', memoryview(body)[body.index(b"{") + 1 :]))
