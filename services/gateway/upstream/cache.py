"""The cache service: calls to it, and its removals, with the time at which this gateway received each.

An entry that is removed while an answer is generated must not come back with that answer. So an answer is stored in the
L1 cache only where no removal overtook it: none was received since the answer began, and the replica that was asked
had made all that were received before. The cache itself knows of removals that arrive later: a store carries the epoch
from before the answer began (`StoreRequest.epoch`).
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
    """The state at the beginning of an answer: the time, the epoch of the replica that was asked, and the key under
    which the answer will be stored, if the cache has reported that. Of a removal: when it was received."""

    at: float = 0.0
    epoch: int = 0
    key: str = ""


class Invalidations:
    """The last `remembered` removals. An older answer counts as overtaken, because it is not known."""

    def __init__(self, remembered: int, clock: Clock = time.monotonic):
        self._remembered, self._clock = remembered, clock
        self._removed: OrderedDict[tuple[str, str], Known] = OrderedDict()  # by what was removed
        self._complete_since = Known(_NEVER)  # every removal since then is in `_removed`
        self._last_key = Known(-_NEVER)  # when a removal by key was received last
        self._epoch = 0

    def began(self, epoch: int = 0) -> None:
        """Record that removals are followed from now on. `epoch`: the cache's, which may be below earlier ones: the
        numbers of a Redis that lost its data begin at the time of its clock."""
        self._epoch = epoch
        self._complete_since = self.known()

    def ended(self) -> None:
        """Removals may be missed from now on."""
        self._complete_since = Known(_NEVER)
        self._removed.clear()

    def record(self, what: str, name: str) -> None:
        """A `key` or a `tenant` of this name was removed, at the epoch learned last."""
        self._removed[what, name] = received = self.known()
        if what == "key":
            self._last_key = received
        self._removed.move_to_end((what, name))
        if len(self._removed) > self._remembered:
            self._complete_since = self._removed.popitem(last=False)[1]

    def learn(self, epoch: int) -> None:
        """The cache has sent an epoch."""
        self._epoch = max(self._epoch, epoch)

    def known(self) -> Known:
        """The state for an answer that begins now."""
        return Known(self._clock(), self._epoch)

    def overtook(self, known: Known, tenant: str) -> bool:
        """Whether the answer may have been removed since it was begun, or before that at another replica."""
        removed = self._removed.get(("key", known.key)) if known.key else self._last_key
        if removed and _is_before(known, removed):
            return True
        complete = self._complete_since
        return known.at < complete.at or known.epoch < complete.epoch or self.took(known, tenant)

    def took(self, known: Known, tenant: str) -> bool:
        """Whether all of its tenant's are known to have been removed since an answer was begun."""
        removed = self._removed.get(("tenant", tenant))
        return removed is not None and _is_before(known, removed)


def _is_before(known: Known, removed: Known) -> bool:
    """Whether an answer was begun before this removal was received, or at a replica that had not made it."""
    return known.at <= removed.at or known.epoch < removed.epoch
