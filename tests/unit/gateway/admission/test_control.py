from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis

from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.control import AdmissionControl
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import QuotaExceeded
from services.gateway.admission.shared_quotas import SharedQuotas
from services.gateway.policies.slot import Shed
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.serving import ShedSettings
from services.runtime.aside import HUGE_BYTES
from services.runtime.deadline import Deadline
from services.runtime.shared_state import SharedState
from tests.clock import PausedClock, loop_clock
from tests.unit.gateway.admission.scene import request, tenant
from tests.unit.gateway.admission.scripted_redis import FlakyState, ScriptedRedis

pytestmark = pytest.mark.paused


def admission_control(pressure: float = 0.0) -> AdmissionControl:
    return AdmissionControl(ShedSettings(), WorkShares(lambda: pressure, 0.85))


def named(name: str, premium: bool = False) -> Tenant:
    return replace(tenant(premium), name=name)


@pytest.mark.parametrize(("premium", "fields"), [(True, {}), (False, {"realtime": True}), (True, {"attempt": 1})])
async def test_a_starved_gateway_admits_requests_of_high_priority(premium, fields):
    await admission_control(pressure=2.0).admit(request(**fields), tenant(premium), "0" * 32, 5)


@pytest.mark.parametrize("fields", [{}, {"attempt": 1}, {"realtime": True, "attempt": 1}])
async def test_a_starved_gateway_refuses_the_others_and_says_why(fields):
    with pytest.raises(Shed) as refused:
        await admission_control(pressure=2.0).admit(request(**fields), tenant(), "ab" * 16, 5)
    assert refused.value.retry_delay_s >= 1
    assert refused.value.metadata["trace_id"] == "ab" * 16
    (decision,) = json.loads(refused.value.metadata["decisions"])
    assert (decision["policy"], decision["action"]) == ("shed", "refused")


async def test_under_pressure_the_tenant_that_causes_it_is_refused_and_not_the_other():
    at, busy, quiet = admission_control(pressure=2.0), named("busy"), named("quiet")
    at.spend(busy, 1)
    await at.admit(request(), quiet, "0" * 32, 5)
    with pytest.raises(Shed, match=r"gateway: score 0 below 50, a pressure of 2\.00, and the tenant has 2\.00 times"):
        await at.admit(request(), busy, "0" * 32, 5)
    await at.admit(request(realtime=True), busy, "0" * 32, 5)


async def test_pressure_that_ended_while_only_premium_tenants_called_is_over():
    pressure, clock = 2.0, PausedClock()
    at = AdmissionControl(ShedSettings(), WorkShares(lambda: pressure, 0.85, clock))
    busy, quiet = named("busy"), named("quiet")
    at.spend(busy, 1)
    with pytest.raises(Shed):
        await at.admit(request(), busy, "0" * 32, 5)
    pressure = 0.0
    await at.admit(request(), named("dear", premium=True), "0" * 32, 5)
    clock.advance(10)
    pressure = 2.0
    for each, seconds in ((busy, 1), (quiet, 0.3)):
        at.spend(each, seconds)
    await at.admit(request(), quiet, "0" * 32, 5)


async def test_a_large_request_of_the_tenant_that_causes_the_pressure_is_refused_before_it_is_parsed():
    at, busy, quiet, premium = (
        admission_control(pressure=2.0),
        named("busy"),
        named("quiet"),
        named("dear", premium=True),
    )
    for each in (busy, premium):
        at.spend(each, 1)
    at.parses(quiet, "", HUGE_BYTES + 1)
    at.parses(premium, "", HUGE_BYTES + 1)
    at.parses(busy, "", HUGE_BYTES)
    with pytest.raises(Shed, match=r"gateway: a large request, a pressure of 2\.00") as refused:
        at.parses(busy, "ab" * 16, HUGE_BYTES + 1)
    assert (refused.value.metadata["why"], refused.value.metadata["trace_id"]) == ("pressure", "ab" * 16)
    (decision,) = json.loads(refused.value.metadata["decisions"])
    assert (decision["policy"], decision["action"]) == ("shed", "refused")


async def test_large_requests_are_parsed_without_pressure_and_where_no_other_tenant_calls():
    calm, alone = admission_control(), admission_control(pressure=2.0)
    calm.spend(named("quiet"), 0.001)
    for at in (calm, alone):
        for _ in range(3):
            at.parses(named("busy"), "", 1_000_000)


async def test_a_request_over_its_tenants_quota_is_refused_and_one_that_ends_makes_room():
    at = admission_control()
    only_one = tenant(concurrency=1)
    reservation = await at.admit(request(), only_one, "0" * 32, 5)
    before = decided("quota", "refused")
    for trace_id in ("ab" * 16, "cd" * 16):
        with pytest.raises(QuotaExceeded) as refused:
            await at.admit(request(), only_one, trace_id, 5)
        assert json.loads(refused.value.metadata["decisions"])[0]["policy"] == "quota"
        assert refused.value.metadata["trace_id"] == trace_id
    assert decided("quota", "refused") == before + 2
    reservation.settle(0)
    await at.admit(request(), only_one, "0" * 32, 5)


def decided(policy: str, action: str) -> float:
    return REGISTRY.get_sample_value("hedgerow_decisions_total", {"policy": policy, "action": action}) or 0.0


async def test_tokens_are_reserved_by_what_the_request_may_cost():
    at, small = admission_control(), tenant(tokens_per_minute=100)
    await at.admit(request(sampling=chat_pb2.Sampling(max_tokens=90)), small, "0" * 32, 5)
    with pytest.raises(QuotaExceeded):
        await at.admit(request(sampling=chat_pb2.Sampling(max_tokens=90)), small, "0" * 32, 5)


def shared_door(pressure: float = 0.0) -> AdmissionControl:
    """Admission control whose Redis has never answered."""
    quotas = SharedQuotas(SharedState(Redis(), timeout_s=1), lease_s=10)
    return AdmissionControl(ShedSettings(), WorkShares(lambda: pressure, 0.85), quotas)


async def test_only_tenants_with_limits_are_asked_for_elsewhere():
    assert not (await admission_control().admit(request(), tenant(concurrency=1), "0" * 32, 5)).local_reason
    assert not (await shared_door().admit(request(), tenant(), "0" * 32, 5)).local_reason
    assert (await shared_door().admit(request(), tenant(concurrency=1), "0" * 32, 5)).local_reason


async def test_a_gateway_without_cpu_time_sheds_without_asking_redis():
    with pytest.raises(Shed):
        await shared_door(pressure=2.0).admit(request(), tenant(concurrency=1), "0" * 32, 1)


async def test_refusals_are_counted_once_they_are_sent():
    labels = {"tenant": "acme", "quota": "concurrency"}
    before = REGISTRY.get_sample_value("hedgerow_quota_refused_total", labels) or 0
    at, only_one = admission_control(), tenant(concurrency=1)
    await at.admit(request(), only_one, "0" * 32, 5)
    with pytest.raises(QuotaExceeded):
        await at.admit_in_time(request(), only_one, "0" * 32, Deadline.after(0.05))
    assert REGISTRY.get_sample_value("hedgerow_quota_refused_total", labels) == before + 1


async def test_an_item_of_a_batch_waits_for_its_quota_and_for_the_pressure_to_fall():
    began, pressure = loop_clock(), 2.0
    at, only_one = AdmissionControl(ShedSettings(), WorkShares(lambda: pressure, 0.85)), tenant(concurrency=1)
    waiting = asyncio.create_task(at.admit_in_time(request(), only_one, "", Deadline.after(60, loop_clock)))
    await asyncio.sleep(2.5)
    pressure = 0.0
    first = await waiting
    times = [loop_clock() - began]
    waiting = asyncio.create_task(at.admit_in_time(request(), only_one, "", Deadline.after(60, loop_clock)))
    await asyncio.sleep(0.25)
    first.settle(0)
    await waiting
    assert [*times, loop_clock() - began] == pytest.approx([3, 3.25])


async def test_an_item_of_a_batch_whose_time_is_over_is_not_admitted_without_redis():
    redis = ScriptedRedis()
    redis.leases["of another gateway"] = loop_clock() + 60
    quotas = SharedQuotas(FlakyState(redis), lease_s=60, clock=loop_clock)  # type: ignore[arg-type]
    carrying = asyncio.create_task(quotas.run())
    at = AdmissionControl(ShedSettings(), WorkShares(lambda: 0.0, 0.85), quotas)
    with pytest.raises(QuotaExceeded):
        await at.admit_in_time(request(), tenant(concurrency=1), "0" * 32, Deadline.after(2.5, loop_clock))
    carrying.cancel()
    await asyncio.wait({carrying})


async def test_a_conversation_is_held_under_any_pressure_and_counts_as_one_at_once():
    at, only_one = admission_control(pressure=2.0), tenant(concurrency=1)
    reservation = await at.hold(only_one, "0" * 32, 1)
    with pytest.raises(QuotaExceeded) as refused:
        await at.hold(only_one, "ab" * 16, 1)
    assert refused.value.metadata["trace_id"] == "ab" * 16
    reservation.settle(0)
    await at.hold(only_one, "0" * 32, 1)
