"""Exact answers kept in the gateway: an answer that was just given needs no hop to be given again.

A copy is good only while the cache's stream of invalidations is open: when it breaks, all copies go. A removal may
overtake the answer it is about on its way here, so a key that was just removed is not taken in for a while.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from cachetools import LRUCache, TTLCache

from hedgerow.cache.v1 import cache_pb2
from services.gateway.backends import Cache
from services.runtime.deadline import Clock

_REMEMBER_REMOVED_S = 10.0  # far longer than a lookup may take
_MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Copy:
    """An answer, the key the cache keeps it under, and when it stops being good."""

    answer: cache_pb2.Answer
    key: str
    tenant: str
    expires: float


class NearCache:
    """At most `entries` answers, each for at most `ttl_s`, by the bytes of their question."""

    def __init__(self, entries: int, ttl_s: float, clock: Clock = time.monotonic):
        self._copies: LRUCache[bytes, Copy] = LRUCache(max(entries, 1))
        self._questions: dict[str, bytes] = {}  # by the cache's key
        self._removed: TTLCache[str, None] = TTLCache(_MAX_REMEMBERED, _REMEMBER_REMOVED_S, timer=clock)
        self._enabled, self._watched = entries > 0, False
        self._ttl_s, self._clock = ttl_s, clock

    def get(self, question: bytes) -> Copy | None:
        copy = self._copies.get(question)
        if copy is None or copy.expires > self._clock():
            return copy
        self._drop(question)
        return None

    def put(self, question: bytes, answer: cache_pb2.Answer, key: str, tenant: str, ttl_ms: int) -> None:
        if not (self._enabled and self._watched) or key in self._removed or tenant in self._removed:
            return
        expires = self._clock() + min(self._ttl_s, ttl_ms / 1000)
        if question not in self._copies and len(self._copies) >= self._copies.maxsize:
            self._questions.pop(self._copies.popitem()[1].key, None)
        self._copies[question] = Copy(answer, key, tenant, expires)
        self._questions[key] = question

    async def follow(self, cache: Cache) -> None:
        """Hear of removals for as long as the cache is there."""
        try:
            async for removal in cache.invalidations():
                match removal.WhichOneof("target"):
                    case "key":
                        self.remove_key(removal.key)
                    case "tenant":
                        self.remove_tenant(removal.tenant)
                    case None:
                        self.watch_began()
        finally:
            self.watch_ended()

    def watch_began(self) -> None:
        """From now on every removal is heard of."""
        self._watched = True

    def watch_ended(self) -> None:
        """Removals may have been missed: nothing here is good any more."""
        self._watched = False
        self._copies.clear()
        self._questions.clear()

    def remove_key(self, key: str) -> None:
        self._removed[key] = None
        question = self._questions.get(key)
        if question is not None:
            self._drop(question)

    def remove_tenant(self, tenant: str) -> None:
        self._removed[tenant] = None
        for question in [question for question, copy in self._copies.items() if copy.tenant == tenant]:
            self._drop(question)

    def _drop(self, question: bytes) -> None:
        copy = self._copies.pop(question)
        self._questions.pop(copy.key, None)
