"""Shared quotas where a gateway or Redis goes, and comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.gateway.admission.quota import Allowance, QuotaExceeded, Reservation
from services.runtime.shared_state import SharedStateLost
from tests.integration.shared_quotas.parts import LEASE_S, Part, admits, admitted, has_tokens, settled, taking_part
from tests.redis import RedisProcess
from tests.waiting import until

_LEASES = "hedgerow:quota:{acme}:leases"


async def test_the_slots_of_a_gateway_that_is_gone_are_free_when_their_leases_are_over(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis) as doomed, taking_part(redis) as other, redis.client() as client:
        await _go(doomed, allowance)
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        await _move_leases(client, -LEASE_S)
        assert await admits(other, allowance)


async def test_a_redis_whose_clock_goes_back_fills_buckets_and_frees_the_slots_of_a_gateway_that_is_gone(
    redis: RedisProcess,
):
    allowance = Allowance(requests_per_s=2, requests_burst=1, concurrency=1)
    async with taking_part(redis) as doomed, taking_part(redis) as other, redis.client() as client:
        await _go(doomed, allowance)
        # As after a failover to a machine whose clock is an hour behind.
        await client.hincrbyfloat("hedgerow:quota:{acme}", "requests_at", 3_600)
        await _move_leases(client, 3_600)
        for key in await client.keys("*"):
            await client.pexpire(key, 3_600_000)
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        await _move_leases(client, -LEASE_S)
        await until(lambda: admits(other, allowance))


async def _go(gateway: Part, allowance: Allowance) -> None:
    """The gateway has admitted a request, and renews nothing any more, as after a kill."""
    (reservation,) = admitted([await gateway.tries(allowance)])
    assert not reservation.local_reason
    gateway.running.cancel()
    await asyncio.wait({gateway.running})


async def _move_leases(client: Any, seconds: float) -> None:
    """As if each ended so much later."""
    for lease in await client.zrange(_LEASES, 0, -1):
        await client.zincrby(_LEASES, seconds, lease)


async def test_a_gateway_that_stops_gives_back_what_has_ended_before_it_goes(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis) as leaving, taking_part(redis) as other:
        (reservation,) = admitted([await leaving.tries(allowance)])
        reservation.settle(1)
        leaving.running.cancel()
        await asyncio.wait({leaving.running})
        assert await admits(other, allowance)


async def test_without_redis_each_gateway_decides_and_knows_what_runs(redis: RedisProcess, parts: tuple[Part, Part]):
    one, _ = parts
    allowance = Allowance(concurrency=2)
    admitted([await one.tries(allowance)])
    await redis.kill()
    (alone,) = admitted([await one.tries(allowance)])
    assert "Redis" in alone.local_reason
    assert isinstance(await one.tries(allowance), QuotaExceeded)


async def test_requests_admitted_without_redis_count_everywhere_when_it_is_back(redis: RedisProcess):
    allowance = Allowance(concurrency=2)
    async with taking_part(redis) as one, taking_part(redis) as other:
        before = admitted([await one.tries(allowance)])
        await redis.kill()
        meanwhile = admitted([await one.tries(allowance)])
        await until(lambda: _is_away(other, allowance))
        await redis.start()
        await until(lambda: one.state.up and other.state.up)
        await settled(redis, running=2)
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        for reservation in (*before, *meanwhile):
            reservation.settle(1)
        await until(lambda: admits(other, allowance))


async def _is_away(part: Part, allowance: Allowance) -> bool:
    outcome = await part.tries(allowance, tenant="another")
    if isinstance(outcome, Reservation):
        outcome.settle(1)
    return not part.state.up


async def test_a_frozen_redis_is_not_waited_for_longer_than_it_may_take(redis: RedisProcess):
    async with taking_part(redis, timeout_s=0.1) as part:
        redis.stop()
        try:
            outcomes = await asyncio.gather(*(part.tries(Allowance(concurrency=50)) for _ in range(20)))
        finally:
            redis.cont()
        assert len(admitted(outcomes)) == 20
        assert all(reservation.local_reason for reservation in admitted(outcomes))


async def test_a_redis_that_has_forgotten_its_scripts_learns_them_again(redis: RedisProcess, parts: tuple[Part, Part]):
    async with redis.client() as client:
        await client.script_flush()
    one, _ = parts
    await one.tries(Allowance(concurrency=5))
    await until(lambda: one.state.up)
    (reservation,) = admitted([await one.tries(Allowance(concurrency=5))])
    assert not reservation.local_reason


async def test_a_full_redis_goes_on_to_share_quotas(redis: RedisProcess, parts: tuple[Part, Part]):
    allowance, losses = Allowance(concurrency=2), list[None]()
    one, other = parts
    for part in parts:
        part.state.on_loss(lambda: losses.append(None))
    async with redis.client() as client:
        await client.config_set("maxmemory", 1)
        (first,) = admitted([await one.tries(allowance)])
        before = await client.zrange(_LEASES, 0, -1, withscores=True)
        one.quotas._renew_at = 0.0
        (second,) = admitted([await other.tries(allowance)])
        one.quotas._work.set()
        await until(lambda: _is_renewed(client, *before[0]))
    assert isinstance(await one.tries(allowance), QuotaExceeded)
    assert (first.local_reason, second.local_reason, losses) == ("", "", [])
    first.settle(1)
    await until(lambda: admits(other, allowance))


async def test_values_that_are_not_ours_harm_no_other_tenants_quota(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    losses = list[None]()
    one.state.on_loss(lambda: losses.append(None))
    async with redis.client() as client:
        await client.set("hedgerow:quota:{acme}", "of another version")
    (alone,) = admitted([await one.tries(Allowance(requests_per_s=1, requests_burst=1))])
    (shared,) = admitted([await one.tries(Allowance(concurrency=1), tenant="globex")])
    assert (bool(alone.local_reason), shared.local_reason, losses) == (True, "", [])
    assert isinstance(await other.tries(Allowance(concurrency=1), tenant="globex"), QuotaExceeded)


async def _is_renewed(client: Any, request_id: bytes, until_s: float) -> bool:
    return (await client.zscore(_LEASES, request_id)) > until_s


async def test_requests_admitted_without_redis_are_charged_when_it_is_back(redis: RedisProcess):
    allowance = Allowance(tokens_per_minute=1_000)
    async with taking_part(redis) as part:
        await redis.kill()
        (reservation,) = admitted([await part.tries(allowance, 600)])
        assert reservation.local_reason
        await redis.start()
        await until(lambda: part.state.up)
        await settled(redis, running=1)  # its lease is there
        reservation.settle(500)
        async with redis.client() as client:
            await until(lambda: has_tokens(client, 500))


async def test_an_end_whose_reply_was_lost_is_sent_again_and_counts_once(
    redis: RedisProcess, parts: tuple[Part, Part], monkeypatch: pytest.MonkeyPatch
):
    one, _ = parts
    (reservation,) = admitted([await one.tries(Allowance(tokens_per_minute=1_000), 600)])
    ask, calls = one.state.ask, list[object]()

    async def loses_the_first(call: Any) -> Any:
        calls.append(reply := await ask(call))
        if len(calls) == 1:
            raise SharedStateLost("the reply is lost")
        return reply

    monkeypatch.setattr(one.state, "ask", loses_the_first)
    reservation.settle(500)
    await until(lambda: calls)
    one.quotas._work.set()
    await until(lambda: len(calls) > 1)
    async with redis.client() as client:
        assert await has_tokens(client, 500)
