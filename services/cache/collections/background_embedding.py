"""Embeds texts in the background, on an engine of its own with threads of low priority.

Lookups' questions are not in the same queue: an engine finishes what it has begun, so a snippet would delay the next
question by ten milliseconds. The operating system's scheduler gives the lookups priority instead. Only the engine's own
threads have the low priority, because they hold no lock of Python's: a low-priority thread with that lock would delay
the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.priority import lower_priority
from services.cache.scheduler import BatchJob, BatchScheduler
from services.cache.vectors import Vector
from services.runtime.errors import Faulty

_NICE = 15  # still some CPU time where all cores are busy
_AT_ONCE = 16  # snippets of one document that wait for the engine, so that tenants take turns
_SECONDS = Histogram(
    "hedgerow_collection_embed_seconds", "Time to embed a snippet, without its wait for the thread.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5),
)  # fmt: skip


class BackgroundEmbedder:
    """Embeds snippets. `load` makes its engine at the first call."""

    def __init__(self, load: Callable[[], Engine]):
        self._load = load
        self._loading = asyncio.Lock()
        self._scheduler: BatchScheduler[str, Vector | None] | None = None
        self.embedded = 0

    async def embed(self, texts: Sequence[str], tenant: str) -> list[Vector]:
        """A unit vector for each text; tenants take turns. Raises `Exhausted` when too many wait."""
        scheduler = await self._ready()
        vectors: list[Vector] = []
        for start in range(0, len(texts), _AT_ONCE):
            vectors += await self._embed_some(scheduler, texts[start : start + _AT_ONCE], tenant)
        return vectors

    def close(self) -> None:
        """End the thread, and cancel waiting work."""
        if self._scheduler:
            self._scheduler.stop()

    async def _embed_some(
        self, scheduler: BatchScheduler[str, Vector | None], texts: Sequence[str], tenant: str
    ) -> list[Vector]:
        jobs: list[BatchJob[str, Vector | None]] = []
        try:
            jobs.extend(scheduler.put(tenant, text) for text in texts)
            vectors = await asyncio.gather(*(job.outcome for job in jobs))
        finally:
            for job in jobs:
                scheduler.withdraw(job)
        self.embedded += len(jobs)
        return [_checked(vector) for vector in vectors]

    async def _ready(self) -> BatchScheduler[str, Vector | None]:
        async with self._loading:
            if self._scheduler is None:
                engine = await _start_engine(self._load)
                self._scheduler = BatchScheduler(engine.embed_batch, engine.max_batch, "snippets", _SECONDS)
            return self._scheduler


async def _start_engine(load: Callable[[], Engine]) -> Engine:
    """An engine whose threads have low priority too: they inherit it from the thread that starts them."""
    with ThreadPoolExecutor(1, "snippets", lower_priority, (_NICE,)) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, load)


def _checked(vector: Vector | None) -> Vector:
    if vector is None:
        raise Faulty("a snippet was cut to the embedder's length, and the embedder finds it too long")
    return vector
