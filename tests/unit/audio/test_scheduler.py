"""Streams and recordings share one model fairly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest

from services.audio.scheduler import BusyMeter, FairMember, TranscriptionScheduler
from tests.clock import PausedClock


class Gate:
    """Work that runs until it is let through, and says what ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._open = threading.Event()

    def hold(self) -> None:
        self._open.wait(10)

    def open(self) -> None:
        self._open.set()

    def note(self, name: str) -> Callable[[], str]:
        def work() -> str:
            self.ran.append(name)
            return name

        return work


@pytest.fixture
async def scheduler() -> AsyncIterator[TranscriptionScheduler]:
    scheduler = TranscriptionScheduler()
    yield scheduler
    await scheduler.close()


@contextmanager
def held(scheduler: TranscriptionScheduler) -> Iterator[Gate]:
    """A model that is at work until the block ends."""
    gate = Gate()
    running = asyncio.create_task(scheduler.run(FairMember(live=True), gate.hold, 1))
    try:
        yield gate
    finally:
        gate.open()
        running.cancel()


async def soon() -> None:
    """Let tasks that were made begin to wait."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_work_returns_its_result_and_raises_its_error(scheduler: TranscriptionScheduler):
    assert await scheduler.run(FairMember(live=True), lambda: 7, 1) == 7
    with pytest.raises(ZeroDivisionError):
        await scheduler.run(FairMember(live=True), lambda: 1 // 0, 1)
    assert await scheduler.run(FairMember(live=True), lambda: 8, 1) == 8


async def order(scheduler: TranscriptionScheduler, *waiting: tuple[str, int, float]) -> list[str]:
    """The order in which work runs: `waiting` has the name, the number and the cost of the pieces of each kind."""
    tasks = []
    with held(scheduler) as gate:
        await soon()
        for name, count, cost in waiting:
            member = FairMember(live=name != "recording")
            tasks += [asyncio.create_task(scheduler.run(member, gate.note(name), cost)) for _ in range(count)]
        await soon()
    await asyncio.gather(*tasks)
    return gate.ran


@pytest.mark.parametrize(
    ("waiting", "ran"),
    [
        ([("recording", 1, 1), ("stream", 1, 1)], "stream recording"),
        ([("greedy", 4, 1), ("modest", 2, 1)], "greedy modest greedy modest greedy greedy"),
        ([("expensive", 2, 3), ("cheap", 4, 1)], "expensive cheap cheap cheap expensive cheap"),
    ],
    ids=["streams go before recordings", "more work gets no more turns", "expensive work is paid for with later turns"],
)
async def test_turns_are_shared(scheduler: TranscriptionScheduler, waiting: list[tuple[str, int, float]], ran: str):
    assert await order(scheduler, *waiting) == ran.split()


async def test_recordings_of_one_tenant_share_its_turns(scheduler: TranscriptionScheduler):
    members = [FairMember(live=False, name=tenant) for tenant in ("a", "a", "a", "b")]
    with held(scheduler) as gate:
        await soon()
        tasks = [asyncio.create_task(scheduler.run(each, gate.note(each.name), 1)) for each in members]
        await soon()
    await asyncio.gather(*tasks)
    assert gate.ran == ["a", "b", "a", "a"]


async def test_work_of_a_cancelled_caller_never_runs(scheduler: TranscriptionScheduler):
    with held(scheduler) as gate:
        await soon()
        gone = asyncio.create_task(scheduler.run(FairMember(live=True), gate.note("gone"), 1))
        stays = asyncio.create_task(scheduler.run(FairMember(live=True), gate.note("stays"), 1))
        await soon()
        gone.cancel()
        await soon()
    await stays
    assert gate.ran == ["stays"]
    assert gone.cancelled()


async def test_a_caller_that_goes_while_its_work_runs_leaves_the_model_to_the_next(scheduler: TranscriptionScheduler):
    gate, member = Gate(), FairMember(live=True)
    running = asyncio.create_task(scheduler.run(member, gate.hold, 1))
    await soon()
    running.cancel()
    await asyncio.wait([running])
    gate.open()
    assert await scheduler.run(FairMember(live=True), lambda: "next", 1) == "next"
    assert member.busy_s > 0  # it is still charged


async def test_several_workers_work_at_once():
    scheduler, meeting = TranscriptionScheduler(workers=2), threading.Barrier(2, timeout=10)
    await asyncio.gather(*(scheduler.run(FairMember(live=True), meeting.wait, 1) for _ in range(2)))
    await scheduler.close()


async def test_the_work_of_a_member_is_measured(scheduler: TranscriptionScheduler):
    member = FairMember(live=False)
    began = time.monotonic()
    await scheduler.run(member, lambda: time.sleep(0.02), 1)
    assert 0.02 <= member.busy_s <= time.monotonic() - began
    assert scheduler.load() > 0
    assert scheduler.load(streams_only=True) == 0


def test_load_is_the_share_of_the_last_seconds():
    clock = PausedClock()
    meter = BusyMeter(clock)
    began = clock()
    clock.advance(2)
    meter.add(began)
    clock.advance(2)
    assert meter.share() == pytest.approx(0.2)
    assert meter.share([clock() - 1]) == pytest.approx(0.3)  # with one that runs
    clock.advance(7)
    assert meter.share() == pytest.approx(0.1)  # half of it is past
    clock.advance(2)
    assert meter.share() == 0
