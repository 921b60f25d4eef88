"""Tenants take turns at one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from services.runtime.errors import Exhausted
from services.runtime.policy.fair_thread import FairThread


@pytest.fixture
async def thread() -> AsyncIterator[FairThread]:
    thread = FairThread("search", 10)
    yield thread
    thread.close()


class Gate:
    """Work that runs until it is let go."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.open.wait(60)


async def behind(thread: FairThread, gate: Gate, tenant: str = "acme") -> asyncio.Task[None]:
    """The task of work that the thread now does."""
    task = asyncio.create_task(thread.run(tenant, gate))
    await asyncio.to_thread(gate.begun.wait, 60)
    return task


async def test_the_number_of_waiting_calls_is_limited_and_a_cancelled_one_makes_room(thread: FairThread) -> None:
    runs = await behind(thread, gate := Gate())
    waiting = [asyncio.create_task(thread.run("acme", Gate())) for _ in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(Exhausted, match="search: 10 wait"):
        await thread.run("acme", Gate())
    for each in (*waiting, runs):  # what runs goes on without its caller
        each.cancel()
    await asyncio.wait([*waiting, runs])
    last = asyncio.create_task(thread.run("acme", lambda: "done"))
    await asyncio.sleep(0)
    gate.open.set()
    assert await last == "done"


async def test_the_tenant_with_the_most_waiting_gives_way(thread: FairThread) -> None:
    runs = await behind(thread, gate := Gate())
    waiting = [asyncio.create_task(thread.run("acme", lambda: "done")) for _ in range(10)]
    await asyncio.sleep(0)
    other = asyncio.create_task(thread.run("other", lambda: "done"))
    with pytest.raises(Exhausted, match="search: 10 wait"):
        await waiting.pop()
    gate.open.set()
    assert await asyncio.gather(*waiting, other) == ["done"] * 10
    await runs


async def test_tenants_take_turns_and_cancelled_work_is_not_done(thread: FairThread) -> None:
    runs, ran = await behind(thread, gate := Gate(), "flood"), list[str]()
    work = [asyncio.create_task(thread.run("flood", lambda: ran.append("flood"))) for _ in range(5)]
    work += [asyncio.create_task(thread.run("other", lambda: ran.append("other")))]
    await asyncio.sleep(0)
    work[2].cancel()
    await asyncio.wait([work[2]])
    gate.open.set()
    await asyncio.wait([runs, *work])
    assert sorted(ran) == ["flood"] * 4 + ["other"]
    assert ran.index("other") <= 1


async def test_an_error_of_the_work_is_its_callers_alone(thread: FairThread) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.run("acme", lambda: 1 // 0)
    assert await thread.run("acme", lambda: "done") == "done"


def test_event_loops_share_it() -> None:
    thread = FairThread("search", 10)
    first, second = (asyncio.run(thread.run("acme", threading.get_ident)) for _ in range(2))
    assert first == second != threading.get_ident()
    thread.close()
