"""A caller that is cancelled while an engine's batch is gathered or runs, at whichever await, leaves no waiter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Histogram

from services.cache.scheduler import BatchScheduler
from services.runtime.deadline import Deadline
from services.runtime.errors import Unavailable
from services.runtime.policy.batch import Batcher
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock


async def doubled(items: list[int]) -> list[int]:
    await asyncio.sleep(0.1)
    return [2 * item for item in items]


async def broken(items: list[int]) -> list[int]:
    await asyncio.sleep(0.1)
    raise Unavailable("gone")


@pytest.mark.parametrize("within_s", [60.0, 0.15, 0.1, 0.05])
@pytest.mark.parametrize("run", [doubled, broken])
@cancelled_at_every_await()
async def test_a_cancelled_caller_of_a_batcher_leaves_nothing_behind(run: Any, within_s: float) -> Work:
    batcher = Batcher[int, int]("test", run, 2, 0.01)
    others = [asyncio.create_task(batcher.submit(number)) for number in range(3)]
    await asyncio.sleep(0)
    yield batcher.submit(7, Deadline.after(within_s, loop_clock))
    await asyncio.gather(*others, return_exceptions=True)
    await batcher.close()
    assert (len(batcher._waiting), batcher._worker) == (0, None)


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("run", [doubled, broken])
@cancelled_at_every_await()
async def test_a_cancelled_caller_of_a_scheduler_leaves_nothing_behind(run: Any, before: int) -> Work:
    """It runs at once, or waits behind others. A running batch continues without its caller, and its end is ignored."""
    seconds = Histogram("test_cancelled_batches_seconds", "Of a test.", registry=CollectorRegistry())
    scheduler = BatchScheduler[int, int](lambda items: items, 1, "test", seconds)
    scheduler._batcher._run = run

    async def work() -> int:
        job = scheduler.put("a", 7)
        try:
            return await job.outcome
        finally:
            scheduler.withdraw(job)

    others = [asyncio.create_task(_computed(scheduler, number)) for number in range(before)]
    await asyncio.sleep(0)
    yield work()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(1)
    assert (scheduler._slots._running, len(scheduler._slots.waiting)) == (0, 0)
    scheduler.stop()


async def _computed(scheduler: BatchScheduler[int, int], number: int) -> int:
    return await scheduler.put("b", number).outcome
