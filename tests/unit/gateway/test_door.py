from __future__ import annotations

import json

import pytest
from redis.asyncio import Redis

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.config import ShedSettings
from services.gateway.door import Door
from services.gateway.identity import Tenant
from services.gateway.shared_quotas import SharedQuotas
from services.runtime.policy.gate import Shed
from services.runtime.policy.quota import Allowance, QuotaExceeded
from services.runtime.shared_state import SharedState


def tenant(premium: bool = False, **allowance: float) -> Tenant:
    return Tenant("acme", premium, 1.0, Allowance(**allowance), 0)


def request(**fields: object) -> pb.GenerateRequest:
    return pb.GenerateRequest(messages=[chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Who are you?")], **fields)


def door(pressure: float = 0.0) -> Door:
    return Door(ShedSettings(), lambda: pressure)


@pytest.mark.parametrize(("premium", "fields"), [(True, {}), (False, {"realtime": True}), (True, {"attempt": 1})])
def test_a_starved_gateway_lets_dear_requests_in(premium, fields):
    door(pressure=2.0).admit(request(**fields), tenant(premium), "0" * 32)


@pytest.mark.parametrize("fields", [{}, {"attempt": 1}, {"realtime": True, "attempt": 1}])
def test_a_starved_gateway_refuses_the_others_and_says_why(fields):
    with pytest.raises(Shed) as refused:
        door(pressure=2.0).admit(request(**fields), tenant(), "ab" * 16)
    assert refused.value.retry_delay_s >= 1
    assert refused.value.metadata["trace_id"] == "ab" * 16
    (decision,) = json.loads(refused.value.metadata["decisions"])
    assert (decision["policy"], decision["action"]) == ("shed", "refused")


def test_a_request_over_its_tenants_quota_is_refused_and_one_that_ends_makes_room():
    at = door()
    only_one = tenant(concurrency=1)
    reservation = at.admit(request(), only_one, "0" * 32)
    with pytest.raises(QuotaExceeded) as refused:
        at.admit(request(), only_one, "0" * 32)
    assert json.loads(refused.value.metadata["decisions"])[0]["policy"] == "quota"
    reservation.settle(0)
    at.admit(request(), only_one, "0" * 32)


def test_tokens_are_reserved_by_what_the_request_may_cost():
    at, small = door(), tenant(tokens_per_minute=100)
    at.admit(request(sampling=chat_pb2.Sampling(max_tokens=90)), small, "0" * 32)
    with pytest.raises(QuotaExceeded):
        at.admit(request(sampling=chat_pb2.Sampling(max_tokens=90)), small, "0" * 32)


def shared_door() -> Door:
    """One whose Redis has never answered."""
    return Door(ShedSettings(), lambda: 0.0, SharedQuotas(SharedState(Redis(), timeout_s=1), lease_s=10))


def test_only_tenants_with_limits_are_asked_for_elsewhere():
    assert not door().asks(tenant(concurrency=1))
    assert not shared_door().asks(tenant())
    assert shared_door().asks(tenant(concurrency=1))


async def test_while_redis_is_away_the_gateway_decides_and_says_so():
    at, only_one = shared_door(), tenant(concurrency=1)
    reservation = await at.admit_shared(request(), only_one, "0" * 32, 1)
    assert "Redis" in reservation.local
    with pytest.raises(QuotaExceeded) as refused:
        await at.admit_shared(request(), only_one, "0" * 32, 1)
    assert json.loads(refused.value.metadata["decisions"])[0]["action"] == "refused"
    reservation.settle(0)
    await at.admit_shared(request(), only_one, "0" * 32, 1)


async def test_a_starved_gateway_asks_nobody():
    starved = Door(ShedSettings(), lambda: 2.0, SharedQuotas(SharedState(Redis(), timeout_s=1), lease_s=10))
    with pytest.raises(Shed):
        await starved.admit_shared(request(), tenant(concurrency=1), "0" * 32, 1)
