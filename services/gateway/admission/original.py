"""What a caller's own words have a provider do beyond the answer: it costs more, or keeps what was said."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hedgerow.chat.v1 import chat_pb2
from services.gateway.errors import FieldDenied
from services.runtime.errors import shorten

# By field, the values as JSON that ask for nothing more.
COSTLY: Mapping[str, Collection[str]] = {
    "background": ("false",),
    "service_tier": ('"auto"', '"default"', '"standard_only"'),
    "store": ("false",),
}


def check(original: chat_pb2.Original, permitted: Sequence[str], tenant: str) -> None:
    """Raise `FieldDenied` for a field that the tenant's setting `provider` does not name."""
    for field, free in COSTLY.items():
        given = original.untranslated.get(field, "")
        if given and given not in free and field not in permitted:
            raise FieldDenied(
                f"{field}: {' or '.join(free)} for tenant {shorten(tenant)}, got {shorten(given)}; "
                f"`provider: [{field}]` in the tenant's settings permits it"
            )
