"""Work after the last event: the cache stores the answer, if it may be stored, and the router gets the outcome of the
generation.

Bounded: when a backend cannot keep up, the excess is dropped and counted, and no answer waits for it. Of answers the
tenant with the most waiting bytes loses its oldest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Gauge

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.router.v1 import router_pb2
from services.gateway.answer.stages.cache.l1 import L1Cache
from services.gateway.decisions import Decisions
from services.gateway.generation.shared import Generation
from services.gateway.guard.screen import holds
from services.gateway.labels import LOCAL, Act
from services.gateway.upstream.cache import Cache, Known
from services.gateway.upstream.calls import keep_up
from services.gateway.upstream.router import Router
from services.runtime.deadline import until_set
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_lru import FairLru
from services.runtime.security.private_data import Rule

_OBSERVATIONS = 1_000  # most that wait
_STORERS = 8  # in parallel, so that the cache can commit several at once
_STORE_TIMEOUT_S = 2.0
_OBSERVE_EVERY_S = 0.1
_ANSWER_OVERHEAD_BYTES = 2_500  # memory of a waiting answer beside its message's fields
_DROPPED = Counter("hedgerow_write_behind_dropped", "Answers not stored and observations not sent.", ["kind"])
_BYTES = Gauge("hedgerow_write_behind_bytes", "Size of the answers that wait to be stored.")
_QuestionKey = tuple[str, bytes]  # a tenant, and the digest of its question
MayStore = Callable[[], Awaitable[bool]]  # a check of an answer before it is stored


def is_by_another_model(name: str, generation: Generation, identities: str) -> bool:
    """Whether another model of this name answered than the one of the cache's key: when an operator exchanges a model,
    its service and the router's table change one after the other. `identities`: `name=identity` of all models, as in
    the key."""
    writer = next((item.finish.identity for item in generation.text.items[-1:]), "")
    return bool(writer and identities) and f"{name}={writer}" not in identities.split()


def is_storable(final: pb.Final, sampling: chat_pb2.Sampling) -> bool:
    """Whether an answer is new, complete and not degraded. An answer that was cut at the request's own `max_tokens` is
    complete, because the question's key has that limit."""
    fresh = final.cache.verdict in (pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_UNAVAILABLE)
    ended = final.finish_reason == chat_pb2.FINISH_REASON_STOP
    cut_as_requested = final.finish_reason == chat_pb2.FINISH_REASON_LENGTH and (
        0 < sampling.max_tokens <= final.usage.completion_tokens
    )
    undegraded = all(label in LOCAL for label in final.degraded)
    return fresh and (ended or cut_as_requested) and undegraded and bool(final.text.strip())


async def is_free_of_private_data(text: str, masks: Sequence[Rule], decisions: Decisions) -> bool:
    """Whether an answer has no private data; else records that it is not stored. The event loop runs between the parts
    of a long answer."""
    if await holds(text, masks):
        note_private(decisions)
        return False
    return True


def note_private(decisions: Decisions) -> None:
    """Record why an answer is not stored."""
    decisions.add(Act.GUARD_BYPASSED, "cache", "the answer holds secrets or personal data")


@dataclass(slots=True, eq=False)
class _Waiting:
    """An answer on its way to the cache, with its size in bytes. `may_store`: None once it has been checked."""

    key: _QuestionKey
    request: cache_pb2.StoreRequest
    known: Known
    size: int
    may_store: MayStore | None

    @property
    def tenant(self) -> str:
        return self.key[0]


class WriteBehind:
    """Queues of answers and observations; `run` sends them. Answers of up to `max_bytes` may wait to be stored."""

    def __init__(self, cache: Cache | None, router: Router | None, l1: L1Cache, max_bytes: int = 1 << 25):
        self._cache, self._router, self._l1 = cache, router, l1
        self._waiting: FairLru[_QuestionKey, _Waiting] = FairLru(max_bytes)
        self._queue: OrderedDict[_QuestionKey, None] = OrderedDict()  # the oldest first
        self._stored_now: dict[_QuestionKey, _Waiting] = {}
        self._work, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        _BYTES.set_function(lambda: self._waiting.bytes)
        self._observations: deque[router_pb2.Observation] = deque()
        self._observed = asyncio.Event()

    def store(
        self, question: bytes, request: cache_pb2.StoreRequest, known: Known, may_store: MayStore | None = None
    ) -> None:
        """Have the cache store an answer; `question` is its digest for the L1 cache, `known` the invalidations when it
        was begun. `may_store` decides whether it may be stored, and until then it is no hit either."""
        request.epoch = known.epoch
        size = request.ByteSize() + _ANSWER_OVERHEAD_BYTES
        waiting = _Waiting((request.question.tenant, question), request, known, size, may_store)
        self._queue[waiting.key] = None
        for dropped in self._waiting.replace(waiting.key, waiting):
            if dropped.key not in self._waiting:  # else a newer answer replaced it
                _DROPPED.labels("store").inc()
                self._queue.pop(dropped.key, None)
        if self._queue:
            self._idle.clear()
            self._work.set()

    def pending(self, tenant: str, question: bytes) -> cache_pb2.Answer | None:
        """The answer that is on its way to the cache, so that an equal question right after it is a hit. None once it
        is removed."""
        key = tenant, question
        waiting = self._waiting.get(key) or self._stored_now.get(key)
        if waiting is None or waiting.may_store or self._l1.removals.overtook(waiting.known, tenant):
            return None
        return waiting.request.answer

    def observe(self, observation: router_pb2.Observation) -> None:
        """Report the outcome of a generation to the router."""
        if self._router is None:
            return
        if len(self._observations) >= _OBSERVATIONS:
            _DROPPED.labels("observation").inc()
            return
        self._observations.append(observation)
        self._observed.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._cache is not None:
                for _ in range(_STORERS):
                    group.create_task(self._keep_storing(self._cache))
            if self._router is not None:
                router = self._router
                group.create_task(keep_up(lambda: self._send_observations(router)))

    async def settle(self, timeout_s: float) -> None:
        """Wait until every answer is stored, or for `timeout_s`."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            _DROPPED.labels("store").inc(len(self._queue))

    async def _keep_storing(self, cache: Cache) -> None:
        while True:
            waiting = await self._next()
            self._stored_now[waiting.key] = waiting
            try:
                await self._keep(cache, waiting)
            finally:
                if self._stored_now.get(waiting.key) is waiting:
                    del self._stored_now[waiting.key]
                if not (self._queue or self._stored_now):
                    self._idle.set()

    async def _keep(self, cache: Cache, waiting: _Waiting) -> None:
        tenant, question = waiting.key
        if waiting.may_store and not await waiting.may_store():
            return
        waiting.may_store = None
        if self._l1.removals.took(waiting.known, tenant):
            _DROPPED.labels("store").inc()
            return
        try:
            stored = await cache.store(waiting.request, _STORE_TIMEOUT_S)
        except ServiceError:
            _DROPPED.labels("store").inc()
            return
        if stored.skipped:  # the shared store is unavailable to that replica; the answer has no fault
            _DROPPED.labels("skipped").inc()
        elif not stored.local_only:  # an answer that a cache of an earlier version keeps only locally
            self._l1.put(question, waiting.request.answer, tenant, waiting.known, stored.key, stored.ttl_ms)

    async def _next(self) -> _Waiting:
        while not self._queue:
            self._work.clear()
            await self._work.wait()
        key, _ = self._queue.popitem(last=False)
        waiting = self._waiting.pop(key)
        assert waiting is not None  # each key in the queue has its answer
        return waiting

    async def _send_observations(self, router: Router) -> None:
        """Send observations until the stream to the router ends. gRPC would read on for the ended call and lose what it
        read, so the iterator ends, too."""
        ended = asyncio.Event()
        try:
            await router.observe(self._batches(ended))
        finally:
            ended.set()

    async def _batches(self, ended: asyncio.Event) -> AsyncIterator[router_pb2.ObserveRequest]:
        while not ended.is_set():
            await until_set(ended, self._wait_for_observations())
            if not ended.is_set():
                batch = list(self._observations)
                self._observations.clear()
                self._observed.clear()
                yield router_pb2.ObserveRequest(observations=batch)

    async def _wait_for_observations(self) -> None:
        await self._observed.wait()
        await asyncio.sleep(_OBSERVE_EVERY_S)  # observations that come meanwhile are sent together
