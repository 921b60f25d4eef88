"""Texts that wait for the engine's one thread. Tenants take turns at it, so the flood of one is waited for by none."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.vectors import Vector
from services.runtime.errors import Exhausted, ServiceError
from services.runtime.policy.batch import Batcher
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_places import FairPlaces

_MAX_WAITING = 1_000
_SECONDS = Histogram(
    "hedgerow_cache_embed_seconds", "Time to embed a batch of texts, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip


@dataclass(eq=False, slots=True)
class Job:
    """A text and what comes of it. `computed` is there once its turn has nearly come."""

    tenant: str
    text: str
    rank: Rank
    outcome: asyncio.Future[Vector | None]
    weight: float = 1.0
    computed: asyncio.Future[Vector | None] | None = None


class Scheduler:
    """At most `_MAX_WAITING` texts wait. Two batches are taken out of turn: one runs, and one gathers meanwhile.

    `name` is the thread's and the batcher's; `seconds` observes how long batches take.
    """

    def __init__(self, engine: Engine, name: str = "embed", seconds: Histogram = _SECONDS):
        self._engine, self._seconds = engine, seconds
        self._thread = ThreadPoolExecutor(1, name)
        self._batcher = Batcher(name, self._run, engine.max_batch, max_delay_s=0)
        self._places: FairPlaces[Job] = FairPlaces(2 * engine.max_batch, self._start)

    def put(self, tenant: str, text: str) -> Job:
        """Have a text embedded when it is its tenant's turn. Raises `Exhausted`."""
        job = Job(tenant, text, self._places.rank(), asyncio.get_running_loop().create_future())
        if len(self._places.waiting) >= _MAX_WAITING:
            self._make_room(tenant)
        self._places.add(job)
        return job

    def withdraw(self, job: Job) -> bool:
        """Take a text back if it still waits, and say whether it did. What runs already goes on."""
        waited = self._places.waiting.remove(job) or bool(job.computed and self._batcher.withdraw(job.computed))
        if waited:
            job.outcome.cancel()
        return waited

    def stop(self) -> None:
        """End the thread, and what waits for it."""
        self._batcher.stop()
        self._places.start_all()
        self._thread.shutdown()

    def _make_room(self, tenant: str) -> None:
        waiting = self._places.waiting
        worst = waiting.worst()
        if waiting.crowd(worst.tenant, 1) <= waiting.crowd(tenant, 1, more=1):
            raise _crowded()
        waiting.remove(worst)
        worst.outcome.set_exception(_crowded())

    def _start(self, job: Job) -> bool:
        try:
            job.computed = self._batcher.put(job.text)
        except ServiceError as error:  # it was stopped
            job.outcome.set_exception(error)
            return False
        job.computed.add_done_callback(lambda computed: self._settle(job, computed))
        return True

    def _settle(self, job: Job, computed: asyncio.Future[Vector | None]) -> None:
        if not (computed.cancelled() or job.outcome.done()):
            error = computed.exception()
            job.outcome.set_exception(error) if error else job.outcome.set_result(computed.result())
        self._places.ended()

    async def _run(self, texts: list[str]) -> list[Vector | None]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._time, texts)

    def _time(self, texts: list[str]) -> list[Vector | None]:
        started = time.perf_counter()
        vectors = self._engine.embed_batch(texts)
        self._seconds.observe(time.perf_counter() - started)
        return vectors


def _crowded() -> Exhausted:
    return Exhausted(f"embed: {_MAX_WAITING} texts wait", retry_delay_s=1)
