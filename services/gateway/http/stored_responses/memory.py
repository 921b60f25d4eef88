"""Responses in the memory of one gateway with one worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import Gauge

from services.gateway.http.stored_responses.store import Owner
from services.runtime.policy.fair_lru import FairLru

_OVERHEAD_BYTES = 1_000  # of a response beside its data: the object, its timer and its index entries
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

    def __len__(self) -> int:
        return len(self._stored)

    @property
    def total_bytes(self) -> int:
        return self._stored.bytes

    async def put(self, owner: Owner, response_id: str, data: bytes) -> bool:
        name, tenant = owner.name(response_id), owner.tenant
        self._forget(name)
        if len(data) + _OVERHEAD_BYTES > self._tenant_bytes:
            return False
        expiry = asyncio.get_running_loop().call_later(self._ttl_s, self._stored.pop, name)
        _cancel(self._stored.replace(name, _Stored(tenant, data, expiry)))
        while self._stored.bytes_of(tenant) > self._tenant_bytes:
            self._forget(self._stored.first_to_go(tenant))
        return name in self._stored

    async def size(self, owner: Owner, response_id: str) -> int | None:
        stored = self._stored.get(owner.name(response_id))
        return len(stored.data) if stored else None

    async def get(self, owner: Owner, response_id: str) -> bytes | None:
        name = owner.name(response_id)
        if (stored := self._stored.get(name)) is None:
            return None
        self._stored.use(name)
        return stored.data

    async def delete(self, owner: Owner, response_id: str) -> bool:
        return self._forget(owner.name(response_id))

    def _forget(self, name: str) -> bool:
        stored = self._stored.pop(name)
        _cancel(filter(None, [stored]))
        return stored is not None


def _cancel(gone: Iterable[_Stored]) -> None:
    for each in gone:
        each.expiry.cancel()
