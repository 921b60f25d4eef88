"""Whoever is cancelled while it is admitted, at whichever await, holds no place and owes no tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.quota_scripts import RENEW, RESERVE, SETTLE
from services.gateway.admission.shared_quotas import _SHA, SharedQuotas
from services.gateway.settings.serving import ShedSettings
from services.runtime.deadline import Deadline
from tests.cancelling import cancelled_at_every_await, settled
from tests.clock import loop_clock
from tests.unit.gateway.admission.test_control import request, tenant

Work = AsyncIterator[Coroutine[Any, Any, object]]
LIMITED = tenant(concurrency=1, tokens_per_minute=600, requests_per_s=100)
REDIS_S = 0.01


class ScriptedRedis:
    """Answers a pipeline after 10 ms, as the scripts do for one tenant that has one place; `leases` are its."""

    def __init__(self) -> None:
        self.leases: dict[str, float] = {}  # when each ends, by id
        self.spent = 0
        self._calls: list[tuple[Any, ...]] = []

    def pipeline(self, transaction: bool) -> ScriptedRedis:
        pipeline = ScriptedRedis()
        pipeline.leases, pipeline.execute = self.leases, self._execute_of(pipeline)
        return pipeline

    def evalsha(self, sha: str, keys: int, *arguments: Any) -> None:
        self._calls.append((sha, *arguments[keys:]))

    def _execute_of(self, pipeline: ScriptedRedis) -> Callable[[], Awaitable[list[Any]]]:
        async def execute() -> list[Any]:
            await asyncio.sleep(REDIS_S)
            return [self._do(*call) for call in pipeline._calls]

        return execute

    def expire(self) -> None:
        for request_id in [each for each, ends in self.leases.items() if ends <= loop_clock()]:
            del self.leases[request_id]

    def _do(self, sha: str, *arguments: Any) -> Any:
        self.expire()
        if sha == _SHA[RENEW]:
            self.leases |= dict.fromkeys(arguments[1:], loop_clock() + arguments[0])
        if sha == _SHA[RESERVE]:
            if self.leases:
                return [b"concurrency", b"0", b"1"]
            self.leases[arguments[0]] = loop_clock() + arguments[1]
            self.spent += arguments[2]
            return [b"", b"0", b"0"]
        if sha == _SHA[SETTLE]:
            for request_id, over in zip(arguments[2::2], arguments[3::2], strict=True):
                if self.leases.pop(request_id, None) is not None:
                    self.spent -= over
        return None


class ScriptedState:
    """As `SharedState` while Redis is there."""

    def __init__(self, redis: ScriptedRedis):
        self.up, self._redis = True, redis

    def on_return(self, hear: Callable[[], Awaitable[None]]) -> None:
        pass

    async def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call(self._redis)


async def answer(admission: AdmissionControl, within_s: float) -> None:
    """One request that waits for its place, and uses none of its tokens."""
    reservation = await admission.admit_in_time(request(), LIMITED, "0" * 32, Deadline.after(within_s, loop_clock))
    try:
        await asyncio.sleep(0.1)
    finally:
        reservation.settle(0)


@pytest.mark.parametrize("within_s", [60.0, 0.5])
def test_by_this_gateway_alone(within_s: float):
    """`within_s`: longer, and shorter, than another keeps the tenant's only place."""

    @asynccontextmanager
    async def scene() -> Work:
        admission = AdmissionControl(ShedSettings(), lambda: 0.0)
        admission._quotas._clock = loop_clock
        other = asyncio.create_task(answer_for_a_second(admission))
        await settled()
        yield answer(admission, within_s)
        await other
        account = admission._quotas._accounts["acme"]
        assert (account.in_flight, account.waiting, account.tokens.level()) == (0, [], 600)

    assert cancelled_at_every_await(scene) >= 1


async def answer_for_a_second(admission: AdmissionControl) -> None:
    reservation = await admission.admit_in_time(request(), LIMITED, "0" * 32, Deadline.after(60, loop_clock))
    await asyncio.sleep(1)
    reservation.settle(0)


@pytest.mark.parametrize("within_s", [60.0, 5 * REDIS_S, 4 * REDIS_S])
@pytest.mark.parametrize("contended", [False, True])
def test_by_all_gateways_together(within_s: float, contended: bool):
    """A fifth of `within_s` is left for Redis: more than it takes, as much, and less."""

    @asynccontextmanager
    async def scene() -> Work:
        redis = ScriptedRedis()
        shared = SharedQuotas(ScriptedState(redis), lease_s=10.0, clock=loop_clock)
        admission = AdmissionControl(ShedSettings(), lambda: 0.0, shared)
        carrying = asyncio.create_task(shared.run())
        other = asyncio.create_task(answer_for_a_second(admission)) if contended else None
        await asyncio.sleep(2 * REDIS_S)
        yield answer(admission, within_s)
        if other:
            await other
        await asyncio.sleep(1)
        carrying.cancel()
        await asyncio.wait({carrying})
        account = shared.local._accounts.get("acme")
        assert (redis.leases, redis.spent, shared._running, shared._ends) == ({}, 0, {}, {})
        assert account is None or (account.in_flight, account.waiting, account.tokens.level()) == (0, [], 600)

    assert cancelled_at_every_await(scene) >= 1
