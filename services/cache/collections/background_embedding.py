"""Embeds texts in the background, on an engine of its own whose threads give way to all others.

In one queue with the lookups' questions, and behind all of them, a snippet would still be before the question that
comes next: it takes ten milliseconds, and what an engine has begun it ends. Threads of less priority are what an
operating system is for. Only the engine's own threads have it, which hold no lock of Python's: one that did would keep
the event loop waiting for its own turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.priority import give_way
from services.cache.scheduler import Job, Scheduler
from services.cache.vectors import Vector
from services.runtime.errors import Faulty

_NICE = 15  # a little is left for it where all cores are busy
_AT_ONCE = 16  # snippets of one document that wait for the engine, so that tenants take turns
_SECONDS = Histogram(
    "hedgerow_collection_embed_seconds", "Time to embed a snippet, without its wait for the thread.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5),
)  # fmt: skip


class EmbedderBehind:
    """Embeds snippets. `load` makes its engine when the first one comes."""

    def __init__(self, load: Callable[[], Engine]):
        self._load = load
        self._loading = asyncio.Lock()
        self._scheduler: Scheduler[str, Vector | None] | None = None
        self.embedded = 0

    async def embed(self, texts: Sequence[str], tenant: str) -> list[Vector]:
        """A unit vector for each text; tenants take turns. Raises `Exhausted` when too many wait."""
        scheduler = await self._ready()
        vectors: list[Vector] = []
        for start in range(0, len(texts), _AT_ONCE):
            vectors += await self._some(scheduler, texts[start : start + _AT_ONCE], tenant)
        return vectors

    def close(self) -> None:
        """End the thread, and what waits for it."""
        if self._scheduler:
            self._scheduler.stop()

    async def _some(self, scheduler: Scheduler[str, Vector | None], texts: Sequence[str], tenant: str) -> list[Vector]:
        jobs: list[Job[str, Vector | None]] = []
        try:
            jobs.extend(scheduler.put(tenant, text) for text in texts)
            vectors = await asyncio.gather(*(job.outcome for job in jobs))
        finally:
            for job in jobs:
                scheduler.withdraw(job)
        self.embedded += len(jobs)
        return [_made(vector) for vector in vectors]

    async def _ready(self) -> Scheduler[str, Vector | None]:
        async with self._loading:
            if self._scheduler is None:
                engine = await _started(self._load)
                self._scheduler = Scheduler(engine.embed_batch, engine.max_batch, "snippets", _SECONDS)
            return self._scheduler


async def _started(load: Callable[[], Engine]) -> Engine:
    """An engine whose own threads give way too: they are as the thread that starts them."""
    with ThreadPoolExecutor(1, "snippets", give_way, (_NICE,)) as thread:
        return await asyncio.get_running_loop().run_in_executor(thread, load)


def _made(vector: Vector | None) -> Vector:
    if vector is None:
        raise Faulty("a snippet was cut to the embedder's length, and the embedder finds it too long")
    return vector
