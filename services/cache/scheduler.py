"""Work that waits for the one thread of a model. Tenants take turns at it, so the flood of one is waited for by
none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client import Histogram

from services.runtime.errors import Exhausted, ServiceError
from services.runtime.policy.batch import Batcher
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_slots import FairSlots

_MAX_WAITING = 1_000
Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(eq=False, slots=True)
class BatchJob(Generic[Given, Made]):
    """The input of a model, and its output. `computed` is there once its turn has nearly come."""

    tenant: str
    given: Given
    rank: Rank
    outcome: asyncio.Future[Made]
    weight: float = 1.0
    computed: asyncio.Future[Made] | None = None


class BatchScheduler(Generic[Given, Made]):
    """Runs `compute` on a thread of its own with up to `max_batch` at once; it returns one result for each, in order.

    At most `_MAX_WAITING` wait. Two batches are taken out of turn: one runs, and one gathers meanwhile. `name` is the
    thread's and the batcher's; `seconds` observes how long batches take.
    """

    def __init__(self, compute: Callable[[list[Given]], list[Made]], max_batch: int, name: str, seconds: Histogram):
        self._compute, self._seconds, self._name = compute, seconds, name
        self._thread = ThreadPoolExecutor(1, name)
        self._batcher = Batcher(name, self._run, max_batch, max_delay_s=0)
        self._slots: FairSlots[BatchJob[Given, Made]] = FairSlots(2 * max_batch, self._start)

    def put(self, tenant: str, given: Given) -> BatchJob[Given, Made]:
        """Have it computed when it is its tenant's turn. Raises `Exhausted`."""
        job: BatchJob[Given, Made] = BatchJob(
            tenant, given, self._slots.rank(), asyncio.get_running_loop().create_future()
        )
        if len(self._slots.waiting) >= _MAX_WAITING:
            self._make_room(tenant)
        self._slots.add(job)
        return job

    def withdraw(self, job: BatchJob[Given, Made]) -> bool:
        """Take it back if it still waits, and say whether it did. Work that runs already goes on."""
        waited = self._slots.waiting.remove(job) or bool(job.computed and self._batcher.withdraw(job.computed))
        if waited:
            job.outcome.cancel()
        return waited

    def stop(self) -> None:
        """End the thread, and what waits for it."""
        self._batcher.stop()
        self._slots.start_all()
        self._thread.shutdown()

    def _make_room(self, tenant: str) -> None:
        waiting = self._slots.waiting
        worst = waiting.worst()
        if waiting.load_of(worst.tenant, 1) <= waiting.load_of(tenant, 1, more=1):
            raise self._crowded()
        waiting.remove(worst)
        if not worst.outcome.done():  # else it is cancelled, and has not run since
            worst.outcome.set_exception(self._crowded())

    def _start(self, job: BatchJob[Given, Made]) -> bool:
        try:
            job.computed = self._batcher.put(job.given)
        except ServiceError as error:  # it was stopped
            job.outcome.set_exception(error)
            return False
        job.computed.add_done_callback(lambda computed: self._settle(job, computed))
        return True

    def _settle(self, job: BatchJob[Given, Made], computed: asyncio.Future[Made]) -> None:
        error = None if computed.cancelled() else computed.exception()  # retrieved also where no caller waits for it
        if not (computed.cancelled() or job.outcome.done()):
            job.outcome.set_exception(error) if error else job.outcome.set_result(computed.result())
        self._slots.ended()

    async def _run(self, batch: list[Given]) -> list[Made]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._time, batch)

    def _time(self, batch: list[Given]) -> list[Made]:
        started = time.perf_counter()
        made = self._compute(batch)
        self._seconds.observe(time.perf_counter() - started)
        return made

    def _crowded(self) -> Exhausted:
        return Exhausted(f"{self._name}: {_MAX_WAITING} texts wait", retry_delay_s=1)
