"""Conversations of requests with an idempotency key, so that a retry is the same request when an earlier response that
it goes on with, or an item that it refers to, was removed meanwhile.

A kept answer goes by its whole conversation, which a retry could not have again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from services.gateway.http.stored_responses.memory import MemoryResponses
from services.gateway.http.stored_responses.store import Owner, StoredResponse
from services.gateway.settings.serving import KeptSettings
from services.runtime.aside import aside

_ANSWER_S = 600.0  # an answer may run before the time begins for which it is kept


class Retries:
    """`keeps` says whether an answer of a tenant's key is kept here: without it nothing is found."""

    def __init__(self, settings: KeptSettings, keeps: Callable[[str, str], bool]):
        self._keeps = keeps
        self._first = MemoryResponses(settings.lasts_s + _ANSWER_S, settings.bytes, settings.bytes)

    async def find(self, owner: Owner, key: str, own: bytes) -> tuple[StoredResponse, int] | None:
        """The conversation of the first request with `key` and this body of its `own`, with the id of its answer; and
        its bytes."""
        if not self._keeps(owner.tenant, key) or not (data := await self._first.get(owner, key)):
            return None
        first = await aside(owner.tenant, len(data), partial(StoredResponse.parse, data))
        return (first, len(data)) if first.response["own"] == _digest(own) else None

    async def keep(self, owner: Owner, key: str, own: bytes, first: StoredResponse, size: int) -> None:
        """Keep the conversation of a first request, of about `size` bytes, with the id of its answer."""
        first.response["own"] = _digest(own)
        await self._first.put(owner, key, await aside(owner.tenant, size, first.serialize))


def _digest(own: bytes) -> str:
    return hashlib.sha256(own).hexdigest()
