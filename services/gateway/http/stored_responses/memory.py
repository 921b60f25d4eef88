"""Responses in the memory of one gateway with one worker, and the conversations that a retry needs again."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from prometheus_client import Gauge

from services.gateway.http.stored_responses.store import Owner, StoredResponse
from services.gateway.settings.serving import KeptSettings
from services.runtime.aside import aside, size_of_text
from services.runtime.policy.fair_lru import FairLru

_OVERHEAD_BYTES = 1_000  # of a response beside its data: the object, its timer and its index entries
_ANSWER_S = 600.0  # an answer may run before the time begins for which it is kept
BYTES = Gauge("hedgerow_stored_responses_bytes", "Size of the responses stored in the gateway's memory.")


@dataclass(frozen=True, slots=True)
class _Stored:
    tenant: str
    data: bytes
    expiry: asyncio.TimerHandle

    @property
    def size(self) -> int:
        return len(self.data) + _OVERHEAD_BYTES


class MemoryResponses:
    """At most `tenant_bytes` of each tenant and `max_bytes` of all: when these are full, the tenant with the most loses
    its least recently used response."""

    def __init__(self, ttl_s: float, tenant_bytes: int, max_bytes: int):
        self._ttl_s, self._tenant_bytes = ttl_s, min(tenant_bytes, max_bytes)
        self._stored: FairLru[str, _Stored] = FairLru(max_bytes)

    @property
    def total_bytes(self) -> int:
        return self._stored.bytes

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        name, tenant = owner.storage_name(response_id), owner.tenant
        self._forget(name)
        if len(data) + _OVERHEAD_BYTES > self._tenant_bytes:
            return False
        expiry = asyncio.get_running_loop().call_later(self._ttl_s, self._stored.pop, name)
        _cancel(self._stored.replace(name, _Stored(tenant, data, expiry)))
        while self._stored.bytes_of(tenant) > self._tenant_bytes:
            self._forget(self._stored.next_to_evict_of(tenant))
        return name in self._stored

    async def size(self, owner: Owner, response_id: str) -> int | None:
        stored = self._stored.get(owner.storage_name(response_id))
        return len(stored.data) if stored else None

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        name = owner.storage_name(response_id)
        if (stored := self._stored.get(name)) is None:
            return None
        self._stored.use(name)
        return stored.data

    async def delete(self, owner: Owner, response_id: str) -> bool:
        return self._forget(owner.storage_name(response_id))

    def _forget(self, name: str) -> bool:
        stored = self._stored.pop(name)
        _cancel(filter(None, [stored]))
        return stored is not None


def _cancel(gone: Iterable[_Stored]) -> None:
    for each in gone:
        each.expiry.cancel()


class Retries:
    """Conversations of requests with an idempotency key, so that a retry is the same request when an earlier response
    that it goes on with, or an item that it refers to, was removed meanwhile. A kept answer goes by its whole
    conversation, which a retry could not have again.

    `keeps` says whether an answer of a tenant's key is kept here: without it nothing is found.
    """

    def __init__(self, settings: KeptSettings, keeps: Callable[[str, str], bool]):
        self._keeps = keeps
        self._first = MemoryResponses(settings.lasts_s + _ANSWER_S, settings.bytes, settings.bytes)

    async def find(self, owner: Owner, key: str, own: bytes) -> tuple[StoredResponse, int] | None:
        """The conversation of the first request with `key` and this body of its `own`, with the id of its answer; and
        its bytes."""
        if not self._keeps(owner.tenant, key) or not (data := await self._first.get(owner, key)):
            return None
        first = await aside(owner.tenant, len(data), partial(StoredResponse.parse, data))
        return (first, len(data)) if first.response["own"] == await _digest(owner, own) else None

    async def keep(self, owner: Owner, key: str, own: bytes, first: StoredResponse, size: int) -> None:
        """Keep the conversation of a first request, of about `size` bytes, with the id of its answer."""
        first.response["own"] = await _digest(owner, own)
        await self._first.put(owner, key, await aside(owner.tenant, size, first.serialize))


async def _digest(owner: Owner, own: bytes) -> str:
    return await aside(owner.tenant, size_of_text(len(own)), lambda: hashlib.sha256(own).hexdigest())
