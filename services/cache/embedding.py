"""Embeddings off the event loop: one thread, a memory of recent texts, and one computation for equal texts.

Texts that come while the thread is busy are embedded together next, as many as the engine takes at once.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cachetools import LRUCache
from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.tokens import as_read
from services.cache.vectors import Vector
from services.runtime.policy.batch import Batcher

_SECONDS = Histogram(
    "hedgerow_cache_embed_seconds", "Time to embed a batch of texts, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip


@dataclass(slots=True)
class _Flight:
    future: asyncio.Future[Vector | None]
    waiting: int = 0


class Embedder:
    """Embeds texts with an engine. Texts that differ only in case or in white space are the same text to the model."""

    def __init__(self, engine: Engine, memory_entries: int):
        self.name, self.unseen = engine.name, engine.unseen
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "embed")
        self._batcher = Batcher("embed", self._run, engine.max_batch, max_delay_s=0)
        self._memory: LRUCache[str, Vector | None] = LRUCache(memory_entries)
        self._flights: dict[str, _Flight] = {}
        self.hits = self.misses = 0

    async def embed(self, text: str) -> Vector | None:
        """A unit vector, or None for a text that is too long. Raises `Exhausted` when too many wait.

        A caller that is cancelled while its text still waits for the thread leaves no work behind.
        """
        text = as_read(text)
        if text in self._memory:
            self.hits += 1
            return self._memory[text]
        flight = self._flights.get(text) or self._take_off(text)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.future)
        finally:
            flight.waiting -= 1
            if not flight.waiting and self._batcher.withdraw(flight.future):
                del self._flights[text]  # what runs already goes on, and is remembered

    def close(self) -> None:
        """End the thread, and what waits for it."""
        self._batcher.stop()
        self._thread.shutdown()

    def _take_off(self, text: str) -> _Flight:
        flight = self._flights[text] = _Flight(self._batcher.put(text))
        self.misses += 1
        flight.future.add_done_callback(lambda done: self._land(text, done))
        return flight

    def _land(self, text: str, future: asyncio.Future[Vector | None]) -> None:
        if future.cancelled():
            return
        del self._flights[text]
        if not future.exception():
            self._memory[text] = future.result()

    async def _run(self, texts: list[str]) -> list[Vector | None]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, texts)

    def _compute(self, texts: list[str]) -> list[Vector | None]:
        started = time.perf_counter()
        vectors = self._engine.embed_batch(texts)
        _SECONDS.observe(time.perf_counter() - started)
        return vectors
