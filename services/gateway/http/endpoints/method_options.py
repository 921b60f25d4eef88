"""Hedgerow's options of a request for a method that has no conversation: its budget, and checks of the guard."""

from __future__ import annotations

from collections.abc import Mapping

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.fields import Fields
from services.gateway.http.request_options import RequestOptions, take_options
from services.runtime.errors import InvalidInput

_BODY = "hedgerow"
_TAKEN = ("budget_ms", "guard")  # names in the body's `hedgerow`
_OF_REQUESTS = ("secrets", "personal")  # checks that a text without a conversation can have


def taken(headers: Mapping[str, str], body: Fields) -> RequestOptions:
    """The options of the headers and of the body's `hedgerow`. Raises `InvalidInput` for an option of the body that
    these methods do not have, and for a check that the guard does not make here."""
    given = body.seen(_BODY)
    for name in given if isinstance(given, dict) else ():
        if name not in _TAKEN:
            raise InvalidInput(f"{_BODY}.{name}", f"one of {', '.join(_TAKEN)} for this method", "another option")
    order = RequestOptions(pb.GenerateRequest())
    take_options(order, headers, body)
    for check, _ in order.request.guard.ListFields():
        if check.name not in _OF_REQUESTS:
            raise InvalidInput(f"{_BODY}.guard", f"checks of {' and '.join(_OF_REQUESTS)} for this method", check.name)
    return order
