"""The L1 cache: exact answers in the memory of the gateway, which need no call to the cache service.

A copy is valid only while the cache's stream of invalidations is open: when it breaks, all copies are dropped. An
invalidation may overtake the answer that it is about, so an answer that was begun before it is not stored.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict
from contextlib import aclosing
from dataclasses import dataclass, replace

from prometheus_client import Gauge

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.upstream.cache import Cache, Invalidations, Known
from services.runtime.deadline import Clock
from services.runtime.policy.fair_lru import FairLru

_MAX_REMEMBERED = 10_000
_SWEEP_S = 1.0
_BYTES = Gauge("hedgerow_l1_cache_bytes", "Size of the L1 cache's answers.")
_OVERHEAD_BYTES = 1_000  # of a copy beside its text: the object and its index entries


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """An answer with the digest of its question, its key in the cache, and its expiry. Not the message that it came in:
    that would keep the whole arena of the message in memory."""

    text: str
    model: str
    finish_reason: chat_pb2.FinishReason
    question: bytes
    key: str
    tenant: str
    expires: float

    @property
    def size(self) -> int:
        return sys.getsizeof(self.text) + _OVERHEAD_BYTES


class L1Cache:
    """At most `entries` answers of `max_bytes` together, each for at most `ttl_s`, by tenant and the digest of their
    question."""

    def __init__(self, entries: int, ttl_s: float, max_bytes: int = 1 << 26, clock: Clock = time.monotonic):
        self._copies: FairLru[tuple[str, bytes], Copy] = FairLru(max_bytes, entries)
        self._by_key: dict[str, Copy] = {}  # the cache's
        self._ends: defaultdict[int, set[Copy]] = defaultdict(set)  # by the second in which they expire
        self.removals = Invalidations(_MAX_REMEMBERED, clock)
        self._enabled = entries > 0 and max_bytes > 0
        self._ttl_s, self._clock = ttl_s, clock
        _BYTES.set_function(lambda: self._copies.bytes)

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, tenant: str, question: bytes) -> Copy | None:
        place = tenant, question
        copy = self._copies.get(place)
        if copy is None:
            return None
        if copy.expires > self._clock():
            self._copies.use(place)
            return copy
        self._drop(copy)
        return None

    def put(self, question: bytes, answer: cache_pb2.Answer, tenant: str, known: Known, key: str, ttl_ms: int) -> None:
        """Store the answer to a question; `known`: the invalidations known when it was begun."""
        if not self._enabled or self.removals.overtook(replace(known, key=key), tenant):
            return
        expires = self._clock() + min(self._ttl_s, ttl_ms / 1000)
        copy = Copy(
            text=answer.text,
            model=answer.model,
            finish_reason=answer.finish_reason,
            question=question,
            key=key,
            tenant=tenant,
            expires=expires,
        )
        if other := self._by_key.get(key):  # a cache of another version may treat two questions as one
            self._drop(other)
        self._by_key[key] = copy
        self._ends[int(expires)].add(copy)
        for gone in self._copies.replace((tenant, question), copy):
            self._unlist(gone)

    async def follow(self, cache: Cache) -> None:
        """Follow the invalidations until the stream ends."""
        try:
            async with aclosing(cache.invalidations()) as removals:
                async for removal in removals:
                    self._take(removal)
        finally:
            self.watch_ended()

    def _take(self, removal: cache_pb2.WatchInvalidationsResponse) -> None:
        self.removals.learn(removal.epoch)
        match removal.WhichOneof("target"):
            case "key":
                self.remove_key(removal.key)
            case "tenant":
                self.remove_tenant(removal.tenant)
            case None:
                self.watch_began(removal.epoch)

    async def run(self) -> None:
        """Drop expired answers, also those that no caller asks for. Runs until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()

    def sweep(self) -> None:
        """Drop expired copies, within a second."""
        now = int(self._clock())
        for second in [second for second in self._ends if second < now]:
            for copy in self._ends.pop(second):
                self._drop(copy)

    def watch_began(self, epoch: int = 0) -> None:
        """The stream of invalidations is open from now on. `epoch`: the cache's."""
        self.removals.began(epoch)

    def watch_ended(self) -> None:
        """Invalidations may have been missed: drop all copies."""
        self.removals.ended()
        self._copies.clear()
        self._by_key.clear()
        self._ends.clear()

    def remove_key(self, key: str) -> None:
        self.removals.record("key", key)
        if copy := self._by_key.get(key):
            self._drop(copy)

    def remove_tenant(self, tenant: str) -> None:
        self.removals.record("tenant", tenant)
        for copy in self._copies.pop_tenant(tenant):
            self._unlist(copy)

    def _drop(self, copy: Copy) -> None:
        self._copies.pop((copy.tenant, copy.question))
        self._unlist(copy)

    def _unlist(self, copy: Copy) -> None:
        if self._by_key.get(copy.key) is copy:
            del self._by_key[copy.key]
        if ending := self._ends.get(int(copy.expires)):
            ending.discard(copy)
