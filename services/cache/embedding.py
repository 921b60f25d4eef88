"""Embeddings off the event loop, with a memory of recent texts, and one computation for equal texts.

Tenants share no result: a text that another tenant has asked takes as long as any other, so response times reveal
nothing of other tenants' questions. The memory holds digests and vectors, no texts, and is divided fairly.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import Histogram

from services.cache.scheduler import BatchJob, BatchScheduler
from services.cache.tokens import as_read
from services.runtime.deadline import Clock
from services.runtime.policy.fair_lru import FairLru

if TYPE_CHECKING:
    from services.cache.engines import Engine
    from services.cache.vectors import Vector

_SECONDS = Histogram(
    "hedgerow_cache_embed_seconds", "Time to embed a batch of texts, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip
_OVERHEAD_BYTES = 700  # of one that is remembered: its digest, its array, its bookkeeping


@dataclass(slots=True)
class _Remembered:
    tenant: str
    vector: Vector | None
    used: float
    size: int = field(init=False)

    def __post_init__(self) -> None:
        vector = 0 if self.vector is None else self.vector.nbytes
        self.size = _OVERHEAD_BYTES + sys.getsizeof(self.tenant) + vector


@dataclass(slots=True)
class _Flight:
    job: BatchJob[str, Vector | None]
    waiting: int = 0


class Embedder:
    """Embeds texts with an engine. Texts that differ only in case or in white space are the same text to the model.
    The memory has `memory_bytes`; texts that were not asked for `forget_after_s` are forgotten by `sweep`."""

    def __init__(self, engine: Engine, memory_bytes: int, forget_after_s: float, clock: Clock = time.monotonic):
        self.name, self._max_characters = engine.name, engine.max_characters
        self._forget_after_s, self._clock = forget_after_s, clock
        self._scheduler = BatchScheduler(engine.embed_batch, engine.max_batch, "embed", _SECONDS)
        self._memory: FairLru[bytes, _Remembered] = FairLru(memory_bytes)
        self._flights: dict[bytes, _Flight] = {}
        self.hits = self.misses = 0

    async def embed(self, text: str, tenant: str) -> Vector | None:
        """A unit vector, or None for a text that is too long. Raises `Exhausted` when too many wait.

        A caller that is cancelled while its text still waits for the thread leaves no work behind.
        """
        if len(text) > self._max_characters:
            return None
        text = as_read(text)
        key = hashlib.sha256(f"{len(tenant)}:{tenant}{text}".encode()).digest()
        if remembered := self._memory.get(key):
            return self._recall(key, remembered)
        flight = self._flights.get(key) or self._take_off(key, tenant, text)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.job.outcome)
        finally:
            flight.waiting -= 1
            if not flight.waiting and self._scheduler.withdraw(flight.job):
                del self._flights[key]  # a computation that has begun goes on, and is remembered

    def sweep(self) -> None:
        """Forget what was not asked for long."""
        before = self._clock() - self._forget_after_s
        for key in self._memory.oldest_while(lambda remembered: remembered.used < before):
            self._memory.pop(key)

    def close(self) -> None:
        """End the thread, and what waits for it."""
        self._scheduler.stop()

    def _recall(self, key: bytes, remembered: _Remembered) -> Vector | None:
        self.hits += 1
        remembered.used = self._clock()
        self._memory.use(key)
        return remembered.vector

    def _take_off(self, key: bytes, tenant: str, text: str) -> _Flight:
        flight = self._flights[key] = _Flight(self._scheduler.put(tenant, text))
        self.misses += 1
        flight.job.outcome.add_done_callback(lambda done: self._land(key, tenant, done))
        return flight

    def _land(self, key: bytes, tenant: str, outcome: asyncio.Future[Vector | None]) -> None:
        if outcome.cancelled():
            return
        del self._flights[key]
        if not outcome.exception():
            self._memory.replace(key, _Remembered(tenant, outcome.result(), self._clock()))
