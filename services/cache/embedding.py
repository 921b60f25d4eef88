"""Embeddings off the event loop: one thread, a memory of recent texts, and one computation for equal texts.

Texts are embedded one at a time. On one core a batch of 32 costs as much per text as 32 single ones (1.9 ms against
1.5, because of the padding), so batching would only make the first wait for the last.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from cachetools import LRUCache
from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.vectors import Vector

_SECONDS = Histogram(
    "hedgerow_cache_embed_seconds", "Time to embed a text, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip


@dataclass(slots=True)
class _Flight:
    work: Future[Vector | None]  # on the thread
    future: asyncio.Future[Vector | None]  # the same, on the event loop
    waiting: int = 0


class Embedder:
    """Embeds texts with an engine. Texts that differ only in case or in white space are the same text to the model."""

    def __init__(self, engine: Engine, memory_entries: int):
        self.name = engine.name
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "embed")
        self._memory: LRUCache[str, Vector | None] = LRUCache(memory_entries)
        self._flights: dict[str, _Flight] = {}
        self.hits = self.misses = 0

    async def embed(self, text: str) -> Vector | None:
        """A unit vector, or None for a text that is too long.

        A caller that is cancelled while its text still waits for the thread leaves no work behind.
        """
        text = " ".join(text.lower().split())
        if text in self._memory:
            self.hits += 1
            return self._memory[text]
        flight = self._flights.get(text) or self._take_off(text)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.future)
        finally:
            flight.waiting -= 1
            if not flight.waiting and flight.work.cancel():  # what runs already goes on, and is remembered
                del self._flights[text]

    def close(self) -> None:
        """End the thread, and what waits for it."""
        self._thread.shutdown(cancel_futures=True)

    def _take_off(self, text: str) -> _Flight:
        self.misses += 1
        work = self._thread.submit(self._compute, text)
        future = asyncio.wrap_future(work)
        flight = self._flights[text] = _Flight(work, future)
        future.add_done_callback(lambda done: self._land(text, done))
        return flight

    def _land(self, text: str, future: asyncio.Future[Vector | None]) -> None:
        if future.cancelled():
            return
        del self._flights[text]
        if not future.exception():
            self._memory[text] = future.result()

    def _compute(self, text: str) -> Vector | None:
        started = time.perf_counter()
        vector = self._engine.embed(text)
        _SECONDS.observe(time.perf_counter() - started)
        return vector
