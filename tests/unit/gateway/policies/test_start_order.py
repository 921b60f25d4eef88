"""Which of the calls that have come begins next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.gateway.policies.start_order import StartOrder

_PAUSE_S = 0.001  # in which gRPC would have handed over a call


class Calls:
    """Calls, each named by its caller's letter, in the order in which they began. Time passes only as `turns` says."""

    def __init__(self) -> None:
        self.now, self.began, self.tasks = 0.0, "", list[asyncio.Task[None]]()
        self._order = StartOrder(lambda: self.now)

    async def come(self, callers: str) -> list[asyncio.Task[None]]:
        came = [asyncio.create_task(self._call(caller)) for caller in callers]
        self.tasks += came
        await asyncio.sleep(0)
        return came

    async def _call(self, caller: str) -> None:
        await self._order.turn(caller)
        self.began += caller

    async def turns(self, number: int, seconds: float = 0.0) -> None:
        """Let so many turns of the event loop pass, and so much time in each."""
        for _ in range(number):
            self.now += seconds
            await asyncio.sleep(0)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    yield (calls := Calls())
    for task in calls.tasks:
        task.cancel()
    await asyncio.gather(*calls.tasks, return_exceptions=True)


async def test_one_call_begins_in_each_turn_of_the_event_loop(calls: Calls):
    await calls.come("aaaa")
    for begun in ("", "a", "aa", "aaa", "aaaa"):
        await calls.turns(1)
        assert calls.began == begun


async def test_callers_take_turns_and_keep_their_own_order(calls: Calls):
    first, second, *_ = await calls.come("aaaabbc")
    await calls.turns(2)
    assert (first.done(), second.done()) == (True, False)
    await calls.turns(10)
    assert calls.began == "abcabaa"


async def test_in_a_flood_there_is_time_for_another_caller_to_come(calls: Calls):
    await calls.come("b" + 39 * "a")
    await calls.turns(200)
    assert calls.began == "b" + 9 * "a"  # one of every four that came
    await calls.come("b")
    await calls.turns(3)
    assert calls.began == "b" + 9 * "a" + "ba"
    await calls.turns(13, _PAUSE_S)
    assert calls.began == "b" + 9 * "a" + "baa"
    await calls.turns(29 * 13, _PAUSE_S)
    assert calls.began == "b" + 9 * "a" + "b" + 30 * "a"


async def test_many_calls_that_are_no_flood_wait_for_no_other(calls: Calls):
    for times in range(1, 50):
        await calls.come("abaa")
        await calls.turns(5)
        assert len(calls.began) == 4 * times
        calls.now += 0.03


async def test_a_caller_without_another_one_for_long_waits_for_none(calls: Calls):
    await calls.come("ba")
    await calls.turns(4)
    calls.now += 10
    await calls.come(60 * "a")
    await calls.turns(62)
    assert calls.began == "b" + 61 * "a"


async def test_a_cancelled_call_takes_no_turn(calls: Calls):
    _, cancelled, *_ = await calls.come("baabb")
    cancelled.cancel()
    await calls.turns(8)
    assert calls.began == "babb"


async def test_where_too_many_wait_one_begins_in_each_turn(calls: Calls):
    await calls.come("b" + 11_200 * "a")
    await calls.turns(4_000)
    assert len(calls.began) == 11_201 - 8_191
