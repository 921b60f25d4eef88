"""A request by HTTP in its caller's own words, for a model behind the same API."""

from __future__ import annotations

from collections.abc import Mapping

from hedgerow.chat.v1 import chat_pb2
from services.gateway.http.fields import Fields
from services.gateway.http.sse import compact
from services.runtime.errors import InvalidInput

_MOST_HEADERS, _MOST_CHARACTERS = 16, 1_024
FOR_PROVIDERS = ("openai-", "anthropic-")
_WHOSE = frozenset({"openai-organization", "openai-project"})  # the gateway's own account pays


def original(
    api: chat_pb2.Api, data: bytes, body: Fields, headers: Mapping[str, str], own: str = "hedgerow"
) -> chat_pb2.Original:
    """The words of a request whose `body` has been read from `data`. `own` is the field that is for the gateway alone.
    Raises `InvalidInput` for headers beyond their limits."""
    unread = {place: given for place, given in body.unread().items() if place.partition(".")[0] != own}
    untranslated = {place: compact(given).decode() for place, given in unread.items()}
    return chat_pb2.Original(api=api, body=data, headers=_for_provider(headers), untranslated=untranslated)


def _for_provider(headers: Mapping[str, str]) -> dict[str, str]:
    """No header says who calls: neither keys nor accounts pass."""
    found = {name: text for name, text in headers.items() if name.startswith(FOR_PROVIDERS) and name not in _WHOSE}
    if len(found) > _MOST_HEADERS:
        raise InvalidInput("headers", f"at most {_MOST_HEADERS} for the provider", len(found))
    for name, text in found.items():
        if len(text) > _MOST_CHARACTERS:
            raise InvalidInput(name, f"at most {_MOST_CHARACTERS} characters", len(text))
        if not (text.isascii() and text.isprintable()):
            raise InvalidInput(name, "printable characters of ASCII", ascii(text))
    return found
