from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, TooLate, Unavailable
from services.runtime.policy.batch import Batcher
from tests.clock import PausedClock

pytestmark = pytest.mark.paused

FOREVER_S = 3_600.0


class Doubling:
    """An engine that doubles numbers, when its limiter is open, and fails on batches with a negative one."""

    def __init__(self) -> None:
        self.limiter, self.busy = asyncio.Event(), asyncio.Event()
        self.limiter.set()
        self.batches: list[list[int]] = []

    async def __call__(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        self.busy.set()
        await self.limiter.wait()
        if min(items) < 0:
            raise ValueError("negative")
        return [2 * item for item in items]


Make = Callable[..., Batcher[int, int]]


@pytest.fixture
async def engine() -> Doubling:
    return Doubling()


@pytest.fixture
async def make(engine: Doubling) -> AsyncIterator[Make]:
    """Makes batchers, and closes them after the test."""
    made: list[Batcher[int, int]] = []

    def make(max_size: int = 4, max_delay_s: float = FOREVER_S, **settings: Any) -> Batcher[int, int]:
        made.append(Batcher("doubling", engine, max_size, max_delay_s, **settings))
        return made[-1]

    yield make
    engine.limiter.set()
    for batcher in made:
        await batcher.close()


async def occupied(engine: Doubling, batcher: Batcher[int, int]) -> asyncio.Future[int]:
    """The future of an item that runs until the limiter opens."""
    engine.limiter.clear()
    future = batcher.put(0)
    await engine.busy.wait()
    return future


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({"max_size": 3}, [1, 2, 3]),
        ({"max_delay_s": 0.001}, [1]),
        ({"max_delay_s": 0}, [1, 2]),
        ({"max_size": 8, "preferred": (2, 4)}, [1, 2]),
    ],
    ids=["a full one", "a lone item after the longest delay", "those of one turn", "one of a preferred size"],
)
async def test_a_batch_starts(engine, make, settings, items):
    batcher = make(**settings)
    assert await asyncio.gather(*(batcher.submit(item) for item in items)) == [2 * item for item in items]
    assert engine.batches == [items]


@pytest.mark.parametrize(
    ("settings", "batches"),
    [({"max_delay_s": 0}, [[1, 2, 3]]), ({"max_size": 8, "preferred": (1, 4)}, [[1, 2, 3, 4], [5]])],
    ids=["all together", "those beyond a preferred size wait for their own delay"],
)
async def test_the_next_batch_gathers_while_one_runs(engine, make, settings, batches):
    batcher = make(**settings)
    first = await occupied(engine, batcher)
    rest = [batcher.put(item) for batch in batches for item in batch]
    engine.limiter.set()
    await asyncio.gather(first, *rest)
    assert engine.batches == [[0], *batches]


async def test_no_batch_waits_when_no_more_items_will_come(engine, make):
    to_come = True
    batcher = make(more_to_come=lambda: to_come)
    first = batcher.put(1)
    to_come = False
    second = batcher.put(2)
    assert await asyncio.gather(first, second) == [2, 4]
    assert await batcher.submit(3) == 6
    assert engine.batches == [[1, 2], [3]]


async def test_a_waiting_batch_runs_when_no_more_items_will_come(engine, make):
    to_come = True
    batcher = make(more_to_come=lambda: to_come)
    waiting = batcher.put(1)
    to_come = False
    batcher.no_more_to_come()
    assert await waiting == 2


async def test_tenants_take_turns_at_the_places_of_a_batch(engine, make):
    batcher = make(max_delay_s=0)
    first = await occupied(engine, batcher)
    many = [batcher.put(item, tenant="many") for item in range(1, 9)]
    few = [batcher.put(item, tenant="few") for item in (10, 11)]
    left = batcher.put(12, tenant="few")
    assert batcher.withdraw(left)
    engine.limiter.set()
    await asyncio.gather(first, *many, *few)
    assert [sorted(batch) for batch in engine.batches] == [[0], [1, 2, 10, 11], [3, 4, 5, 6], [7, 8]]


async def test_an_expired_item_does_not_run_and_another_is_batched_instead(engine, make):
    clock = PausedClock()
    batcher = make(max_size=2)
    engine.limiter.clear()
    running = [batcher.put(item) for item in (0, 0)]
    expired = batcher.put(1, Deadline.after(5, clock))
    rest = [batcher.put(item) for item in (2, 3)]
    clock.advance(6)
    engine.limiter.set()
    assert await asyncio.gather(*running, *rest) == [0, 0, 4, 6]
    with pytest.raises(TooLate, match="doubling: the deadline passed"):
        await expired
    assert engine.batches == [[0, 0], [2, 3]]


async def test_a_waiter_does_not_wait_past_its_deadline(engine, make):
    batcher = make(max_size=1)
    first = await occupied(engine, batcher)
    with pytest.raises(TooLate):
        await batcher.submit(1, Deadline.after(0.001))
    engine.limiter.set()
    await first
    await batcher.submit(2, Deadline.after(60))
    assert engine.batches == [[0], [2]]


async def test_a_failing_batch_fails_its_own_items_only(engine, make):
    batcher = make(max_size=2)
    results = await asyncio.gather(*(batcher.submit(item) for item in (1, -1, 2, 3)), return_exceptions=True)
    assert [type(result) for result in results] == [ValueError, ValueError, int, int]


async def test_a_time_out_of_the_engine_is_not_the_waiters_own():
    async def late(items: list[int]) -> list[int]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await Batcher("late", late, 1, 0).submit(1, Deadline.after(60))


async def test_an_engine_that_loses_a_result_fails_the_batch():
    async def losing(items: list[int]) -> list[int]:
        return items[1:]

    with pytest.raises(ValueError, match="shorter"):
        await Batcher("losing", losing, 1, 0).submit(1)


async def test_a_full_queue_refuses_at_once_and_names_its_limit(engine, make):
    batcher = make(max_size=1, max_queue=2)
    first = await occupied(engine, batcher)
    rest = [batcher.put(item) for item in (1, 2)]
    with pytest.raises(Exhausted, match="doubling: 2 of 2 waiting"):
        await batcher.submit(3)
    engine.limiter.set()
    assert await asyncio.gather(first, *rest) == [0, 2, 4]


async def test_a_full_queue_has_room_for_a_tenant_with_less_in_it(engine, make):
    batcher = make(max_size=1, max_queue=3)
    first = await occupied(engine, batcher)
    flood = [batcher.put(item, tenant="flood") for item in (1, 2, 3)]
    other = batcher.put(4, tenant="other")
    with pytest.raises(Exhausted, match="doubling: 3 of 3 waiting"):
        batcher.put(5, tenant="flood")
    with pytest.raises(Exhausted):
        await flood.pop()
    engine.limiter.set()
    assert await asyncio.gather(first, *flood, other) == [0, 2, 4, 8]
    assert engine.batches == [[0], [1], [4], [2]]


async def test_closing_finishes_what_runs_and_refuses_the_rest(engine, make):
    batcher = make(max_size=1)
    first = await occupied(engine, batcher)
    waiting = batcher.put(1)
    closing = asyncio.create_task(batcher.close())
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await batcher.submit(2)
    engine.limiter.set()
    await closing
    assert first.result() == 0
    assert engine.batches == [[0]]


async def test_when_a_worker_is_cancelled_no_caller_waits_for_ever():
    async def ending(items: list[int]) -> list[int]:
        raise asyncio.CancelledError

    batcher = Batcher("ending", ending, 1, 0)
    running, waiting = batcher.put(1), batcher.put(2)
    for future in (running, waiting):
        with pytest.raises(Unavailable):
            await future


async def test_the_sizes_of_batches_are_measured(engine, make):
    labels = {"batcher": "doubling"}
    before = REGISTRY.get_sample_value("hedgerow_batch_size_sum", labels) or 0
    batcher = make(max_size=2)
    await asyncio.gather(batcher.submit(1), batcher.submit(2))
    assert REGISTRY.get_sample_value("hedgerow_batch_size_sum", labels) == before + 2


@given(
    max_size=st.integers(1, 5),
    preferred=st.lists(st.integers(1, 6), max_size=2),
    callers=st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 4)), max_size=30),
)
def test_each_item_runs_at_most_once_and_its_result_goes_to_its_owner(max_size, preferred, callers):
    """A caller: after how many turns of the event loop it comes, and after how many more it gives up, if it does."""
    batches: list[list[int]] = []

    async def run(items: list[int]) -> list[int]:
        batches.append(items)
        await asyncio.sleep(0)
        return [2 * item for item in items]

    async def caller(batcher: Batcher[int, int], item: int, turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await batcher.submit(item)

    async def main() -> list[asyncio.Task[int]]:
        batcher = Batcher("any", run, max_size, 0.0005, tuple(preferred))
        tasks = [asyncio.create_task(caller(batcher, item, turns)) for item, (turns, _) in enumerate(callers)]
        for turn in range(10):
            for task, (turns, patience) in zip(tasks, callers, strict=True):
                if patience is not None and turns + patience == turn:
                    task.cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.close()
        return tasks

    tasks = asyncio.run(main())
    ran = [item for batch in batches for item in batch]
    assert len(ran) == len(set(ran))
    assert all(1 <= len(batch) <= max_size for batch in batches)
    for item, (task, (_, patience)) in enumerate(zip(tasks, callers, strict=True)):
        assert task.cancelled() or task.result() == 2 * item
        assert not task.cancelled() or patience is not None
