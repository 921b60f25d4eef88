"""A request that is cancelled during admission, at any await, holds no slot and owes no tokens."""

from __future__ import annotations

import asyncio

import pytest

from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.shared_quotas import SharedQuotas
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.serving import ShedSettings
from services.runtime.deadline import Deadline
from tests.cancelling import Work, cancelled_at_every_await, settled
from tests.clock import loop_clock
from tests.unit.gateway.admission.scene import request, tenant
from tests.unit.gateway.admission.scripted_redis import REDIS_S, FlakyState, ScriptedRedis

LIMITED = tenant(concurrency=1, tokens_per_minute=600, requests_per_s=100)


async def answer(admission: AdmissionControl, within_s: float) -> None:
    """One request that waits for its slot, and uses none of its tokens."""
    reservation = await admission.admit_in_time(request(), LIMITED, "0" * 32, Deadline.after(within_s, loop_clock))
    try:
        await asyncio.sleep(0.1)
    finally:
        reservation.settle(0)


@pytest.mark.parametrize("within_s", [60.0, 0.5])
@cancelled_at_every_await()
async def test_by_this_gateway_alone(within_s: float) -> Work:
    """`within_s`: longer, and shorter, than another keeps the tenant's only slot."""
    admission = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85))
    admission._quotas._clock = loop_clock
    other = asyncio.create_task(answer_for_a_second(admission))
    await settled()
    yield answer(admission, within_s)
    await other
    account = admission._quotas._accounts["acme"]
    assert (account.in_flight, account.waiting, account.tokens.level()) == (0, [], 600)


async def answer_for_a_second(admission: AdmissionControl) -> None:
    reservation = await admission.admit_in_time(request(), LIMITED, "0" * 32, Deadline.after(60, loop_clock))
    await asyncio.sleep(1)
    reservation.settle(0)


@pytest.mark.parametrize("within_s", [60.0, 5 * REDIS_S, 4 * REDIS_S])
@pytest.mark.parametrize("contended", [False, True])
@cancelled_at_every_await()
async def test_by_all_gateways_together(within_s: float, contended: bool) -> Work:
    """A fifth of `within_s` is left for Redis: more than it takes, as much, and less."""
    redis = ScriptedRedis()
    shared = SharedQuotas(FlakyState(redis), lease_s=10.0, clock=loop_clock)
    admission = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85), shared)
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
