"""WaitingBytes for requests that wait."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from services.runtime.errors import Exhausted
from services.runtime.policy.waiting_bytes import WaitingBytes
from tests.cancelling import Work, cancelled_at_every_await


def test_a_flood_of_one_tenant_leaves_room_for_another() -> None:
    room = WaitingBytes(1_000)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(room.hold("acme", 10))
        with pytest.raises(Exhausted), room.hold("acme", 10):
            pass
        for _ in range(25):
            stack.enter_context(room.hold("globex", 10))
        with pytest.raises(Exhausted), room.hold("globex", 10):
            pass
        stack.enter_context(room.hold("initech", 10))


def test_room_is_free_again_when_a_request_ends_however_it_ends() -> None:
    room = WaitingBytes(100)
    for _ in range(10):
        with pytest.raises(RuntimeError), room.hold("acme", 50):
            raise RuntimeError
    with room.hold("acme", 50):
        pass
    assert (room._taken, room._held) == (0, {})


def waiting(room: WaitingBytes, came: list[str], *tenants: str) -> list[asyncio.Task[None]]:
    """Each of them waits for 40 bytes, and says so when it has them."""

    async def take(tenant: str) -> None:
        await room.take_in_time(tenant, 40, 1.0)
        came.append(tenant)

    return [asyncio.create_task(take(tenant)) for tenant in tenants]


@pytest.mark.paused
async def test_requests_that_wait_for_bytes_get_them_by_tenant_in_turn_and_in_order() -> None:
    room, came = WaitingBytes(100), list[str]()
    room.take("acme", 50)
    tasks = waiting(room, came, "acme", "acme", "globex", "initech")
    await asyncio.sleep(0.1)
    assert came == ["globex"]  # the others' share is what is free
    room.give_back("globex", 40)
    await asyncio.sleep(0.1)
    assert came == ["globex", "initech"]
    room.give_back("initech", 40)
    room.give_back("acme", 50)
    await asyncio.sleep(0.1)
    assert came == ["globex", "initech", "acme"]
    room.give_back("acme", 40)
    await asyncio.gather(*tasks)
    assert came == ["globex", "initech", "acme", "acme"]
    room.give_back("acme", 40)
    assert (room._taken, room._held, room._waiters) == (0, {}, {})


@pytest.mark.paused
async def test_a_request_that_waits_for_bytes_in_vain_gets_a_retry_delay_and_makes_way() -> None:
    room = WaitingBytes(100)
    room.take("acme", 50)
    first = asyncio.create_task(room.take_in_time("globex", 60, 1.0))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(room.take_in_time("globex", 50, 1.0))
    await asyncio.sleep(0.1)
    assert not second.done()  # it stands behind the first
    with pytest.raises(Exhausted, match="one more has 60 bytes") as refused:
        await first
    assert refused.value.retry_delay_s == 1.0
    await second
    assert room._held == {"acme": 50, "globex": 50}
    assert not room._waiters


@pytest.mark.paused
async def test_requests_that_are_cancelled_together_leave_nothing_behind() -> None:
    room = WaitingBytes(100)

    async def work() -> None:
        await room.take_in_time("acme", 50, 1.0)
        try:
            await asyncio.sleep(1.0)
        finally:
            room.give_back("acme", 50)

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await asyncio.sleep(0.1)
    for task in tasks:  # the first has its bytes, and the others wait for them
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert (room._taken, room._held, room._waiters) == (0, {}, {})


@cancelled_at_every_await(awaits=2)
async def test_a_request_cancelled_while_it_waits_for_bytes_leaves_nothing_behind() -> Work:
    room = WaitingBytes(100)
    room.take("acme", 80)

    async def work() -> None:
        await room.take_in_time("globex", 40, 1.0)
        try:
            await asyncio.sleep(0.1)
        finally:
            room.give_back("globex", 40)

    behind = asyncio.create_task(room.take_in_time("globex", 30, 2.0))
    asyncio.get_running_loop().call_later(0.5, room.give_back, "acme", 80)
    yield work()
    await behind
    room.give_back("globex", 30)
    await asyncio.sleep(1.0)
    assert (room._taken, room._held, room._waiters) == (0, {}, {})
