"""The cache service: calls to it, and its removals, with the time at which this gateway received each.

An entry that is removed while an answer is generated must not come back with that answer. So an answer is stored in the
L1 cache only where no removal overtook it. The cache itself knows of removals that arrive later: a store carries the
epoch from before the answer began (`StoreRequest.epoch`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from hedgerow.cache.v1 import cache_pb2
from services.gateway.upstream.calls import Pending, follow_reachable, server_stream, unary, whose
from services.runtime.deadline import Clock
from services.runtime.telemetry import Metadata

_NEVER = float("inf")


class Cache:
    def __init__(self, channel: grpc.aio.Channel):
        self._channel = channel
        self._lookup = unary(channel, cache_pb2, "CacheService", "Lookup")
        self._store = unary(channel, cache_pb2, "CacheService", "Store")
        self._watch = server_stream(channel, cache_pb2, "CacheService", "WatchInvalidations")
        self._embed = unary(channel, cache_pb2, "CacheService", "Embed")
        self._stats = unary(channel, cache_pb2, "CacheService", "GetStats")
        self._invalidate = unary(channel, cache_pb2, "CacheService", "Invalidate")
        self._report = unary(channel, cache_pb2, "CacheService", "ReportVerdict")

    async def embed(
        self, request: cache_pb2.EmbedRequest, timeout_s: float, metadata: Metadata
    ) -> cache_pb2.EmbedResponse:
        return await self._reply(self._embed, request, timeout_s, metadata)  # type: ignore[no-any-return]

    async def stats(self, tenant: str, timeout_s: float, metadata: Metadata) -> cache_pb2.GetStatsResponse:
        """Counts of the replica that these metadata lead to, and a tenant's threshold."""
        request = cache_pb2.GetStatsRequest(tenant=tenant)
        return await self._reply(self._stats, request, timeout_s, metadata)  # type: ignore[no-any-return]

    async def invalidate(self, request: cache_pb2.InvalidateRequest, timeout_s: float, metadata: Metadata) -> int:
        """How many entries were removed."""
        return int((await self._reply(self._invalidate, request, timeout_s, metadata)).removed)

    async def report(self, request: cache_pb2.ReportVerdictRequest, timeout_s: float, metadata: Metadata) -> bool:
        """Whether an entry was tightened. `metadata` says whose it is."""
        return bool((await self._reply(self._report, request, timeout_s, metadata)).tightened)

    async def lookup(
        self, request: cache_pb2.LookupRequest, timeout_s: float, metadata: Metadata
    ) -> cache_pb2.LookupResponse:
        metadata = (*metadata, whose(request.question.tenant))
        return await self._reply(self._lookup, request, timeout_s, metadata)  # type: ignore[no-any-return]

    async def store(self, request: cache_pb2.StoreRequest, timeout_s: float) -> cache_pb2.StoreResponse:
        metadata = (whose(request.question.tenant),)
        return await self._reply(self._store, request, timeout_s, metadata)  # type: ignore[no-any-return]

    async def _reply(self, method: Any, request: Message, timeout_s: float, metadata: Metadata) -> Any:
        return await Pending(method(request, timeout=timeout_s, metadata=metadata), "cache").reply()

    def invalidations(self) -> AsyncGenerator[cache_pb2.WatchInvalidationsResponse, None]:
        """Removals as they happen; waits for the cache to be there, ends with `ServiceError` when it goes."""
        return follow_reachable(self._channel, partial(self._watch, cache_pb2.WatchInvalidationsRequest()), "cache")


@dataclass(frozen=True, slots=True)
class Known:
    """The state at the beginning of an answer: the time, the cache's epochs, and the key under which it will be stored,
    if the cache has reported that."""

    at: float = 0.0
    epoch: int = 0
    key: str = ""


class Invalidations:
    """The last `remembered` removals. An older answer counts as overtaken, because it is not known."""

    def __init__(self, remembered: int, clock: Clock = time.monotonic):
        self._remembered, self._clock = remembered, clock
        self._removed_at: OrderedDict[tuple[str, str], float] = OrderedDict()  # by what was removed
        self._complete_since = _NEVER  # every removal since then is in `_heard`
        self._last_key = -_NEVER  # when a removal by key was heard last
        self._epoch = 0

    def began(self, epoch: int = 0) -> None:
        """Record that removals are followed from now on. `epoch`: the cache's, which may be below earlier ones: the
        numbers of a Redis that lost its data begin at the time of its clock."""
        self._complete_since, self._epoch = self._clock(), epoch

    def ended(self) -> None:
        """Removals may be missed from now on."""
        self._complete_since = _NEVER
        self._removed_at.clear()

    def record(self, what: str, name: str) -> None:
        """A `key` or a `tenant` of this name was removed."""
        self._removed_at[what, name] = now = self._clock()
        if what == "key":
            self._last_key = now
        self._removed_at.move_to_end((what, name))
        if len(self._removed_at) > self._remembered:
            self._complete_since = self._removed_at.popitem(last=False)[1]

    def learn(self, epoch: int) -> None:
        """The cache has sent an epoch."""
        self._epoch = max(self._epoch, epoch)

    def known(self) -> Known:
        """The state for an answer that begins now."""
        return Known(self._clock(), self._epoch)

    def overtook(self, known: Known, tenant: str) -> bool:
        """Whether the answer may have been removed since it was begun."""
        key = self._since(known, "key", known.key) if known.key else self._last_key >= known.at
        return key or known.at < self._complete_since or self.took(known, tenant)

    def took(self, known: Known, tenant: str) -> bool:
        """Whether all of its tenant's are known to have been removed since an answer was begun."""
        return self._since(known, "tenant", tenant)

    def _since(self, known: Known, what: str, name: str) -> bool:
        return self._removed_at.get((what, name), -_NEVER) >= known.at
