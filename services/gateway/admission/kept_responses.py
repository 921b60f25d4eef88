"""Providers keep responses unless they are told not to. A tenant without the permission `store` has nothing kept."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hedgerow.chat.v1 import chat_pb2
from services.gateway.errors import FieldDenied
from services.runtime.errors import shorten

_GO_ON = ("conversation", "previous_response_id")  # with what a provider has kept
_STORE = "store"


def settle(original: chat_pb2.Original, permitted: Sequence[str], tenant: str) -> None:
    """Have the provider keep nothing where the tenant's setting `provider` does not name `store` and the request does
    not say. Raises `FieldDenied` for a request that goes on with what was kept: that could only be another tenant's."""
    if original.api != chat_pb2.API_RESPONSES or _STORE in permitted:
        return
    for field in _GO_ON:
        if given := original.untranslated.get(field):
            raise FieldDenied(
                f"{field}: none for tenant {shorten(tenant)}, got {shorten(given)}; "
                f"`provider: [{_STORE}]` in the tenant's settings permits it"
            )
    if _STORE not in original.untranslated:
        original.body = json.dumps({**json.loads(original.body), _STORE: False}, separators=(",", ":")).encode()
        original.untranslated[_STORE] = "false"
