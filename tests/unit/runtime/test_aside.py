"""Large requests are read beside the event loop, and huge ones do not keep them waiting."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import weakref
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace

import pytest

from services.runtime.aside import HUGE_BYTES, LARGE_BYTES, MEDIUM_BYTES, _turns, aside, give_way, size_in
from tests.cancelling import Work, cancelled_at_every_await, settled


async def test_work_on_a_large_request_leaves_the_event_loop() -> None:
    here = threading.get_ident()
    assert await aside("acme", LARGE_BYTES, threading.get_ident) == here
    assert await aside("acme", LARGE_BYTES + 1, threading.get_ident) != here


@pytest.mark.parametrize("size", [LARGE_BYTES + 1, HUGE_BYTES + 1])
async def test_two_requests_of_a_size_are_not_worked_on_at_once(size: int) -> None:
    first, at_once = threading.Event(), list[bool]()

    def work() -> None:
        at_once.append(first.is_set())
        first.set()
        threading.Event().wait(0.01)
        first.clear()

    await asyncio.gather(*(aside("acme", size, work) for _ in range(5)))
    assert at_once == [False] * 5


async def test_a_large_request_does_not_wait_for_a_huge_one() -> None:
    done = threading.Event()
    huge = asyncio.create_task(aside("acme", HUGE_BYTES + 1, lambda: done.wait(60)))
    await aside("acme", LARGE_BYTES + 1, done.set)
    assert await huge


async def test_tenants_take_turns() -> None:
    open_, done = threading.Event(), list[str]()
    flood = [asyncio.create_task(aside("flood", LARGE_BYTES + 1, lambda: open_.wait(60)))]
    flood += [asyncio.create_task(aside("flood", LARGE_BYTES + 1, lambda: done.append("flood"))) for _ in range(5)]
    await asyncio.sleep(0)
    other = asyncio.create_task(aside("other", LARGE_BYTES + 1, lambda: done.append("other")))
    await asyncio.sleep(0)
    open_.set()
    await asyncio.gather(other, *flood)
    assert done.index("other") <= 1


async def test_the_event_loop_runs_between_two_pieces_of_medium_work() -> None:
    loop, turns, seen = asyncio.get_running_loop(), list[int](), list[int]()

    def turn() -> None:
        turns.append(1)
        loop.call_soon(turn) if len(seen) < 10 else None

    loop.call_soon(turn)
    await asyncio.gather(*(aside("acme", MEDIUM_BYTES + 1, lambda: seen.append(len(turns))) for _ in range(10)))
    assert len({*seen}) == 10


async def test_small_work_waits_for_no_turn() -> None:
    done = list[str]()
    medium = [asyncio.create_task(aside("acme", LARGE_BYTES, lambda: done.append("medium"))) for _ in range(5)]
    await asyncio.sleep(0)
    await aside("acme", MEDIUM_BYTES, lambda: done.append("small"))
    await asyncio.gather(*medium)
    assert done.index("small") == 0


async def test_tenants_take_turns_at_medium_work() -> None:
    done = list[str]()
    flood = [asyncio.create_task(aside("flood", LARGE_BYTES, lambda: done.append("flood"))) for _ in range(9)]
    await asyncio.sleep(0)
    await aside("other", LARGE_BYTES, lambda: done.append("other"))
    await asyncio.gather(*flood)
    assert done.index("other") <= 2


async def test_no_cycles_are_looked_for_while_a_huge_one_is_worked_on() -> None:
    assert gc.isenabled()
    assert await aside("acme", HUGE_BYTES + 1, gc.isenabled) is False
    with pytest.raises(ZeroDivisionError):
        await aside("acme", HUGE_BYTES + 1, lambda: 1 // 0)
    assert gc.isenabled()


async def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        await aside("acme", HUGE_BYTES + 1, threading.get_ident)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [LARGE_BYTES + 1, HUGE_BYTES + 1])
async def test_refused_work_leaves_nothing_for_the_garbage_collector(size: int) -> None:
    class Made:
        pass

    made = list[weakref.ref[Made]]()

    def refuse() -> None:
        object_of_a_request = Made()
        made.append(weakref.ref(object_of_a_request))
        raise ZeroDivisionError

    gc.disable()
    try:
        for _ in range(3):
            with suppress(ZeroDivisionError):
                await aside("acme", size, refuse)
        await aside("acme", size, int)  # the thread is done with the others
        assert [each() for each in made] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("body", "more_than", "at_most"),
    [
        (
            b'{"content":"' + b"A sentence, with a comma, of some sixty characters. " * 1_000 + b'"}',
            0,
            LARGE_BYTES,
        ),
        (b"[" + b"{}," * 200 + b"{}]", 0, LARGE_BYTES),
        (b"[" + b"{}," * 500 + b"{}]", LARGE_BYTES, HUGE_BYTES),
        (b"[" + b"{}," * 1_100 + b"{}]", HUGE_BYTES, math.inf),
        (b"[" + b'"a",' * 9_000 + b'"a"]', HUGE_BYTES, math.inf),
        (b"[" + b"[]," * 5_000 + b"[]]", HUGE_BYTES, math.inf),
        (b"[" + (b'{"a":"' + b"a" * 1_000 + b'"},') * 500 + b"{}]", LARGE_BYTES, HUGE_BYTES),
        (b"[" + b'{"a":"aaaaaaaaaa"},' * 20_000 + b"{}]", HUGE_BYTES, math.inf),
        (b'{"content":"' + b"a" * 1_000_000 + b'"}', 0, LARGE_BYTES),
        (b'{"content":"' + b"a" * 1_100_000 + b'"}', HUGE_BYTES, math.inf),
    ],
)
def test_the_size_of_a_body_is_that_of_its_objects_and_values_unless_it_is_long(
    body: bytes, more_than: float, at_most: float
) -> None:
    assert more_than < size_in(body) <= at_most


def test_the_size_of_a_long_body_is_estimated_from_parts_of_it() -> None:
    item = b'{"role":"user","content":"a"},'
    short, long = (b"[" + item * times + b"{}]" for times in (5_000, 500_000))
    assert size_in(long) == pytest.approx(100 * size_in(short), rel=0.05)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time as `aside` sees it, which passes where a test says so."""
    now = SimpleNamespace(s=0.0)
    monkeypatch.setattr("services.runtime.aside.time", SimpleNamespace(perf_counter=lambda: now.s))
    return now


async def test_a_piece_waits_for_all_that_is_ready_and_all_that_this_makes_ready(clock: SimpleNamespace) -> None:
    steps, seen = list[int](), list[int]()

    async def small_call() -> None:
        for step in range(19):
            steps.append(step)
            clock.s += 0.0001
            await asyncio.sleep(0)

    async def pieces() -> None:
        for _ in range(2):
            await give_way("acme")
            seen.append(len(steps))

    await asyncio.gather(pieces(), small_call())
    assert seen == [19, 19]


async def test_pieces_are_done_one_at_a_time_though_other_work_never_ends(clock: SimpleNamespace) -> None:
    loop, turns, seen = asyncio.get_running_loop(), [0], list[int]()

    def turn() -> None:
        turns[0] += 1
        clock.s += 0.0005
        if len(seen) < 6:
            loop.call_soon(turn)

    async def piece(tenant: str) -> None:
        await give_way(tenant)
        seen.append(turns[0])

    loop.call_soon(turn)
    await asyncio.gather(*(piece(tenant) for tenant in "abc" * 2))
    assert [later - earlier for earlier, later in pairwise(seen)] == [seen[1] - seen[0]] * 5
    assert seen[1] - seen[0] in range(4, 8)  # 2 ms, and the turn of its own


@cancelled_at_every_await(awaits=2)
async def test_a_caller_that_leaves_gives_its_turn_back() -> Work:
    other = asyncio.create_task(give_way("other"))
    yield give_way("acme")
    await other
    await settled()
    turns = _turns[asyncio.get_running_loop()]
    assert (turns._slots._running, turns.waiting) == (0, 0)
