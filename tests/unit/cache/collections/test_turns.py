"""Tenants take turns at one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from services.cache.collections.fair_executor import Turns
from services.cache.collections.reading import fused
from services.runtime.errors import Exhausted


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    turns = Turns("search", 10, lambda: None)
    yield turns
    turns.close()


async def test_so_many_may_wait_and_who_leaves_makes_room(turns: Turns) -> None:
    gate = threading.Event()
    waiting = [asyncio.create_task(turns.run("acme", gate.wait)) for _ in range(11)]
    await asyncio.sleep(0)
    with pytest.raises(Exhausted, match="search: 10 wait"):
        await turns.run("acme", gate.wait)
    waiting[5].cancel()  # it waits
    waiting[0].cancel()  # it runs, and goes on
    await asyncio.wait([waiting[5], waiting[0]])
    last = asyncio.create_task(turns.run("acme", lambda: "done"))
    await asyncio.sleep(0)
    gate.set()
    assert await last == "done"


async def test_cancelling_just_when_a_turn_comes_leaves_the_thread_to_one_caller_at_a_time(turns: Turns) -> None:
    for _ in range(3):
        gate = threading.Event()
        first = asyncio.create_task(turns.run("acme", gate.wait))
        second = asyncio.create_task(turns.run("acme", gate.wait))
        await asyncio.sleep(0)
        gate.set()
        turns._thread.submit(lambda: None).result()  # the work of the first has ended, and its task has not run since
        asyncio.get_running_loop().call_soon(second.cancel)
        await asyncio.wait([first, second])
    gate, ran = threading.Event(), []
    work = [asyncio.create_task(turns.run("flood", gate.wait))]
    work += [asyncio.create_task(turns.run("flood", lambda: ran.append("flood"))) for _ in range(5)]
    await asyncio.sleep(0)
    work += [asyncio.create_task(turns.run("other", lambda: ran.append("other")))]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*work)
    assert ran.index("other") <= 1


def test_what_is_first_in_all_rankings_has_one_and_what_only_one_has_found_the_half_of_it_at_most() -> None:
    scores = dict(fused([[1, 2, 3], [1, 4, 2]]))
    assert scores[1] == 1
    assert list(scores) == [1, 2, 4, 3]
    assert scores[4] < 0.5
    assert fused([[7]]) == [(7, 1.0)]
    assert fused([]) == []
