"""What is done for an answer after its client has the last event: the cache keeps it, the router hears how it went.

Bounded: when a backend cannot keep up, what does not fit is dropped and counted, and no answer waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from prometheus_client import Counter

from hedgerow.cache.v1 import cache_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.backends import Cache, Router, keep_up
from services.gateway.near import NearCache
from services.runtime.errors import ServiceError

_QUEUE = 1_000  # answers or observations that may wait
_STORERS = 8  # side by side, so that the cache can commit several at once
_STORE_TIMEOUT_S = 2.0
_OBSERVE_EVERY_S = 0.1
_DROPPED = Counter("hedgerow_aftermath_dropped", "Answers not stored and observations not sent.", ["kind"])


class Aftermath:
    """Give it what there is to do; `run` does it."""

    def __init__(self, cache: Cache | None, router: Router | None, near: NearCache):
        self._cache, self._router, self._near = cache, router, near
        self._stores: asyncio.Queue[tuple[bytes, cache_pb2.StoreRequest]] = asyncio.Queue(_QUEUE)
        self._pending: dict[bytes, cache_pb2.Answer] = {}
        self._observations: asyncio.Queue[router_pb2.Observation] = asyncio.Queue(_QUEUE)

    def store(self, question: bytes, request: cache_pb2.StoreRequest) -> None:
        """Have the cache keep an answer; `question` is the near cache's key for it."""
        try:
            self._stores.put_nowait((question, request))
            self._pending[question] = request.answer
        except asyncio.QueueFull:
            _DROPPED.labels("store").inc()

    def pending(self, question: bytes) -> cache_pb2.Answer | None:
        """The answer that is on its way to the cache: who asks again at once finds it too."""
        return self._pending.get(question)

    def observe(self, observation: router_pb2.Observation) -> None:
        """Tell the router how a generation went."""
        if self._router is None:
            return
        try:
            self._observations.put_nowait(observation)
        except asyncio.QueueFull:
            _DROPPED.labels("observation").inc()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._cache is not None:
                for _ in range(_STORERS):
                    group.create_task(self._keep_storing(self._cache))
            if self._router is not None:
                router = self._router
                group.create_task(keep_up(lambda: router.observe(self._batches())))

    async def settle(self, timeout_s: float) -> None:
        """Wait until every answer is stored, or for `timeout_s`."""
        try:
            await asyncio.wait_for(self._stores.join(), timeout_s)
        except TimeoutError:
            _DROPPED.labels("store").inc(self._stores.qsize())

    async def _keep_storing(self, cache: Cache) -> None:
        while True:
            question, request = await self._stores.get()
            try:
                stored = await cache.store(request, _STORE_TIMEOUT_S)
                tenant = request.question.tenant
                if not stored.local_only:
                    self._near.put(question, request.answer, stored.key, tenant, stored.ttl_ms)
            except ServiceError:
                _DROPPED.labels("store").inc()
            finally:
                self._pending.pop(question, None)
                self._stores.task_done()

    async def _batches(self) -> AsyncIterator[router_pb2.ObserveRequest]:
        while True:
            batch = [await self._observations.get()]
            await asyncio.sleep(_OBSERVE_EVERY_S)
            while not self._observations.empty():
                batch.append(self._observations.get_nowait())
            yield router_pb2.ObserveRequest(observations=batch)
