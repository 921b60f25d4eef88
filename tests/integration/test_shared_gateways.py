"""Whole gateways that share quotas and hedges on a real Redis, which comes and goes, as they do."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.fault.asking import Asked, Asker, Outcome, asking
from tests.fault.mesh import Processes, processes
from tests.redis import PATIENT_MS, RedisProcess
from tests.waiting import until

_WITHIN_S = 20.0


def _tenant(**limits: object) -> dict[str, Any]:
    return {"acme": {"keys": [hashlib.sha256(b"key").hexdigest()], **limits}}


@pytest.fixture
async def starter(tmp_path: Path) -> AsyncIterator[Processes]:
    async with processes(tmp_path / "logs") as running:
        yield running


async def _two_gateways(starter: Processes, redis: RedisProcess, each_ms: float = 100, **limits: object) -> list[Any]:
    """In front of one simulated model, whose answers have 600 tokens. Every refusal is by a quota."""
    llm = await starter.start("simulated_llm", tokens=600, each_ms=each_ms)
    settings = {
        "tenants": _tenant(**limits),
        "redis_url": redis.url,
        "redis_timeout_ms": PATIENT_MS,
        "quota_lease_ms": 6_000,  # renewed each 2 s
        "limit": {"algorithm": "fixed", "initial": 100},
        "shed": {"score": -10_000},
    }
    return list(await asyncio.gather(*(starter.gateway(llm.spec.address, **settings) for _ in range(2))))


async def _run(caller: Asker, count: int, **fields: Any) -> list[Asked]:
    """Questions whose answers have begun."""
    asked = [caller.start(f"Question {number}?", **fields) for number in range(count)]
    for each in asked:
        await each.first_text()
    return asked


def _refused(outcome: Outcome) -> bool:
    return outcome.code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def _admitted(caller: Asker) -> Outcome:
    """The first answer that is not refused, of those that are asked for one after the other."""
    outcomes = await caller.until(lambda outcome: not _refused(outcome), _WITHIN_S, max_tokens=1)
    return outcomes[-1]


async def test_two_gateways_share_a_tenants_concurrency_and_a_killed_one_returns_its_own(
    starter: Processes, redis: RedisProcess
):
    first, second = await _two_gateways(starter, redis, concurrency=5)
    async with asking(first.spec.address, "key") as one, asking(second.spec.address, "key") as other:
        on_first, on_second = await _run(one, 3), await _run(other, 2)
        refused = [await one.ask(), await other.ask()]
        assert [outcome.code for outcome in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2, refused
        assert "5 of 5 requests at once" in refused[1].details
        on_first.pop().cancel()
        assert (await _admitted(other)).ok
        first.signal(signal.SIGKILL)
        on_second += [await _run_when_admitted(other) for _ in range(3)]
        assert _refused(await other.ask())
        for each in on_second:
            each.cancel()


async def _run_when_admitted(caller: Asker) -> Asked:
    async with asyncio.timeout(_WITHIN_S):
        while True:
            asked = caller.start()
            with suppress(grpc.aio.AioRpcError):  # refused: there is no slot yet
                await asked.first_text()
                return asked


async def test_without_redis_answers_are_marked_and_shared_quotas_return_with_it(
    starter: Processes, redis: RedisProcess
):
    first, second = await _two_gateways(starter, redis, concurrency=3)
    async with asking(first.spec.address, "key") as one, asking(second.spec.address, "key") as other:
        running = await _run(one, 1)
        await redis.kill()
        alone = await one.ask(max_tokens=1)
        assert "quota:local" in alone.final.degraded
        assert alone.decided("quota") == ["local"]
        running += await _run(one, 2)  # the one from before is known
        assert _refused(await one.ask())
        await redis.start()
        await other.until(lambda outcome: _refused(outcome), _WITHIN_S, max_tokens=1)
        running.pop().cancel()
        again = await _admitted(other)
        assert "quota:local" not in again.final.degraded
        for each in running:
            each.cancel()


async def test_a_gateway_makes_second_calls_that_another_has_saved(starter: Processes, redis: RedisProcess):
    quick = await starter.start("simulated_llm")
    slow = [(await starter.start("simulated_llm", first_ms=3_000)).spec.address for _ in range(2)]
    hedge = {"mode": "fixed", "delay_ms": 20, "max_share": 0.05}
    saving = await starter.gateway(quick.spec.address, redis_url=redis.url, hedge=hedge)
    late = await starter.gateway(*slow, redis_url=redis.url, hedge=hedge)
    async with asking(saving.spec.address) as one, asking(late.spec.address) as other, redis.client() as client:
        # They earn four: one stays, one is for the other to have at hand, and the pool has the rest.
        for number in range(80):
            await one.ask(f"Question {number}?")
        await until(lambda: _holds(client, "hedgerow:hedges", 1))
        assert "started" in (await other.ask()).decided("hedge")


async def _holds(client: Any, key: str, least: float) -> bool:
    return float(await client.get(key) or 0) >= least
