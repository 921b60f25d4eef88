"""The connection to what processes share, on a real Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from launcher.processes import free_port
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, SharedStateLost, connected
from tests.redis import PATIENT_S, RedisProcess, redis_server

_WITHIN_S = 30


@pytest.fixture
async def state(redis: RedisProcess) -> AsyncIterator[SharedState]:
    async with connected(Url(redis.url), timeout_s=PATIENT_S) as state, asyncio.timeout(_WITHIN_S):
        yield state


async def ping(client: Redis) -> bool:
    return bool(await client.ping())


async def test_a_subscriber_is_notified_of_each_loss_and_return(
    redis: RedisProcess, state: SharedState, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str, bool]] = []

    async def returned() -> None:
        heard.append(("there", state.up))

    state.on_return(returned)
    state.on_loss(lambda: heard.append(("gone", state.up)))
    with caplog.at_level(logging.INFO, "services.runtime.shared_state"):
        await state.back()
        await redis.kill()
        with pytest.raises(SharedStateLost):
            await state.ask(ping)
        with pytest.raises(SharedStateLost):  # at once
            await state.ask(ping)
        await redis.start()
        await state.back()
    assert await state.ask(ping)
    assert heard == [("there", False), ("gone", False), ("there", False)]
    assert ["again" in record.message for record in caplog.records] == [True, False, True]


async def test_the_metric_is_1_only_while_all_connections_of_a_process_are_answered(redis: RedisProcess) -> None:
    there, absent = Url(redis.url), Url(f"redis://127.0.0.1:{free_port()}/0")
    async with connected(there, PATIENT_S) as first, asyncio.timeout(_WITHIN_S):
        await first.back()
        assert REGISTRY.get_sample_value("hedgerow_shared_state_up") == 1
        async with connected(absent, PATIENT_S) as other:
            await other.tried()
            async with connected(there, PATIENT_S) as last:
                await last.back()
                assert REGISTRY.get_sample_value("hedgerow_shared_state_up") == 0
        assert REGISTRY.get_sample_value("hedgerow_shared_state_up") == 1


async def test_a_restart_is_one_loss_however_many_connections_there_were(
    redis: RedisProcess, state: SharedState
) -> None:
    losses: list[None] = []
    state.on_loss(lambda: losses.append(None))
    await state.back()
    await asyncio.gather(*(state.ask(ping) for _ in range(5)))
    await redis.kill()
    with pytest.raises(SharedStateLost):
        await state.ask(ping)
    await redis.start()
    await state.back()
    await asyncio.gather(*(state.ask(ping) for _ in range(5)))
    assert len(losses) == 1


async def test_a_redis_that_is_full_and_lost_with_each_change_does_not_fill_the_log(
    redis: RedisProcess, state: SharedState, caplog: pytest.LogCaptureFixture
) -> None:
    await state.back()
    async with redis.client() as client:
        await client.config_set("maxmemory", 1)
    caplog.clear()  # of its first answer, where another test has left the logger's level at INFO
    with caplog.at_level(logging.INFO, "services.runtime.shared_state"):
        for _ in range(3):
            await state.back()
            with pytest.raises(SharedStateLost):
                await state.ask(lambda client: client.set("a", "b"))
        await state.back()
    assert ["answers again" in record.message for record in caplog.records] == [False, True]


async def test_an_absent_redis_is_noticed_soon(tmp_path: Path) -> None:
    async with redis_server(tmp_path, started=False) as redis, connected(Url(redis.url), PATIENT_S) as state:
        await state.tried()
        assert not state.up
        await redis.start()
        await state.back()
        assert await state.ask(ping)


async def test_a_call_that_began_before_a_loss_says_nothing_about_what_came_after(
    redis: RedisProcess, state: SharedState
) -> None:
    await state.back()
    began, end = asyncio.Event(), asyncio.Event()

    async def fail_late(client: Redis) -> None:
        began.set()
        await end.wait()
        raise ConnectionError("long ago")

    late = asyncio.create_task(state.follow(fail_late, _WITHIN_S))
    await began.wait()
    state.lose("the test says so")
    assert not state.up
    await state.back()
    end.set()
    with pytest.raises(SharedStateLost):
        await late
    assert state.up


async def wait_for_nothing(client: Redis) -> object:
    return await client.blpop(["nothing"], 10)  # type: ignore[misc]


async def test_a_slow_transfer_is_no_loss_while_redis_answers(redis: RedisProcess) -> None:
    async with connected(Url(redis.url), timeout_s=1) as state, asyncio.timeout(_WITHIN_S):
        losses: list[None] = []
        state.on_loss(lambda: losses.append(None))
        await state.back()
        with pytest.raises(TimeoutError):
            await state.transfer(wait_for_nothing, 0.1)
        assert (state.up, losses) == (True, [])
        redis.stop()
        with pytest.raises(SharedStateLost):
            await state.transfer(wait_for_nothing, 0.1)
        redis.cont()
        assert losses == [None]
        await redis.kill()
        with pytest.raises(SharedStateLost):  # at once
            await state.transfer(wait_for_nothing, 10)


async def test_an_exception_in_a_subscriber_does_not_end_the_polling(
    redis: RedisProcess, state: SharedState, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [ValueError("once")]

    async def returned() -> None:
        if faults:
            raise faults.pop()

    state.on_return(returned)
    await state.back()
    assert not faults
    assert "ValueError: once" in caplog.text


async def test_a_task_that_asks_all_the_time_ends_when_it_is_cancelled(state: SharedState) -> None:
    await state.back()

    async def ask_on() -> None:
        while True:
            await state.ask(ping)

    for turns in range(100):  # wherever in a call it is
        asking = asyncio.create_task(ask_on())
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
