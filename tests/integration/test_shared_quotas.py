"""Tenants' quotas of several gateways, on a real Redis that comes and goes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from services.gateway.admission.quota import CONVERSATION, REQUEST, TURN, Allowance, Claim, QuotaExceeded, Reservation
from services.gateway.admission.shared_quotas import SharedQuotas
from services.runtime.security.secrets import Url
from services.runtime.shared_state import SharedState, connected
from tests.redis import RedisProcess
from tests.waiting import until

_SLOW = 0.001  # requests a second: none comes back while a test runs


@dataclass(frozen=True, slots=True)
class Part:
    """One gateway's part, in this process."""

    state: SharedState
    quotas: SharedQuotas
    running: asyncio.Task[None]

    async def tries(
        self, allowance: Allowance, tokens: int = 1, tenant: str = "acme", claim: Claim = REQUEST
    ) -> Reservation | QuotaExceeded:
        try:
            return await self.quotas.reserve(tenant, allowance, tokens, 5, claim)
        except QuotaExceeded as refused:
            return refused


@asynccontextmanager
async def taking_part(redis: RedisProcess, lease_s: float = 10, timeout_s: float = 2) -> AsyncIterator[Part]:
    async with connected(Url(redis.url), timeout_s) as state:
        quotas = SharedQuotas(state, lease_s)
        running = asyncio.create_task(quotas.run())
        try:
            await until(lambda: state.up)
            yield Part(state, quotas, running)
        finally:
            running.cancel()
            await asyncio.wait({running})


@pytest.fixture
async def parts(redis: RedisProcess) -> AsyncIterator[tuple[Part, Part]]:
    async with taking_part(redis) as first, taking_part(redis) as second:
        yield first, second


def admitted(outcomes: list[Reservation | QuotaExceeded]) -> list[Reservation]:
    return [outcome for outcome in outcomes if isinstance(outcome, Reservation)]


@pytest.mark.parametrize(
    ("allowance", "tokens", "limit", "quota"),
    [
        (Allowance(concurrency=7), 1, 7, "concurrency"),
        (Allowance(requests_per_s=_SLOW, requests_burst=7), 1, 7, "requests"),
        (Allowance(tokens_per_minute=2), 1, 2, "tokens"),
    ],
)
async def test_many_at_once_at_two_gateways_get_what_there_is_and_no_more(
    parts: tuple[Part, Part], allowance: Allowance, tokens: int, limit: int, quota: str
):
    outcomes = await asyncio.gather(*(part.tries(allowance, tokens) for _ in range(40) for part in parts))
    assert len(admitted(outcomes)) == limit
    assert not any(reservation.local for reservation in admitted(outcomes))
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert Counter(each.metadata["quota"] for each in refused) == {quota: 80 - limit}
    assert all(each.retry_delay_s > 0 for each in refused)


async def test_a_place_that_is_settled_is_free_for_the_other_gateway_and_only_once(parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(concurrency=2)
    first, second = admitted([await one.tries(allowance) for _ in range(2)])
    assert isinstance(await other.tries(allowance), QuotaExceeded)
    first.settle(1)
    first.settle(1)
    first.release()
    await until(lambda: _admits(other, allowance))
    assert isinstance(await one.tries(allowance), QuotaExceeded)
    second.settle(1)


async def _admits(part: Part, allowance: Allowance, tokens: int = 1) -> bool:
    return isinstance(await part.tries(allowance, tokens), Reservation)


async def test_what_an_answer_cost_beyond_its_estimate_is_a_debt_at_every_gateway(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    one, other = parts
    allowance = Allowance(tokens_per_minute=60)
    (reservation,) = admitted([await one.tries(allowance, tokens=10)])
    reservation.settle(90)
    await _settled(redis)
    refused = await other.tries(allowance, tokens=1)
    assert isinstance(refused, QuotaExceeded)
    assert 25 < refused.retry_delay_s <= 31
    assert "0 of 60 tokens a minute left and 30 owed, 1 needed" in refused.message


async def test_tokens_that_were_not_needed_are_there_for_every_gateway(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(tokens_per_minute=1)  # so slow that none comes by itself
    (reservation,) = admitted([await one.tries(allowance, tokens=1)])
    assert not await _admits(other, allowance)
    reservation.settle(0)
    await _settled(redis)
    assert await _admits(other, allowance)


async def _settled(redis: RedisProcess, tenant: str = "acme", running: int = 0) -> None:
    async with redis.client() as client:
        await until(lambda: _counts(client, tenant, running))


async def _counts(client: Any, tenant: str, running: int) -> bool:
    return await client.zcard(f"hedgerow:quota:{{{tenant}}}:leases") == running


async def test_a_new_allowance_holds_at_all_gateways_and_is_no_gift(parts: tuple[Part, Part]):
    one, other = parts
    few, many = Allowance(requests_per_s=_SLOW, requests_burst=2), Allowance(requests_per_s=_SLOW, requests_burst=50)
    assert len(admitted([await one.tries(few) for _ in range(3)])) == 2
    assert isinstance(await other.tries(many), QuotaExceeded)
    assert isinstance(await other.tries(Allowance(concurrency=3)), Reservation)


async def test_a_burst_that_was_raised_is_there_for_a_tenant_that_has_rested(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    one, other = parts
    few, many = Allowance(requests_per_s=1, requests_burst=2), Allowance(requests_per_s=1, requests_burst=9)
    assert len(admitted([await one.tries(few) for _ in range(2)])) == 2
    async with redis.client() as client:  # Redis' own clock: the last request was earlier
        await client.hincrbyfloat("hedgerow:quota:{acme}", "requests_at", -16)
    assert len(admitted([await other.tries(many) for _ in range(9)])) == 9


async def test_one_tenants_flood_takes_nothing_from_another(parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(requests_per_s=_SLOW, requests_burst=1)
    assert len(admitted([await one.tries(allowance, tenant="flood") for _ in range(5)])) == 1
    assert isinstance(await other.tries(allowance, tenant="calm"), Reservation)


async def test_who_leaves_before_the_verdict_holds_no_place(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(concurrency=1)
    leaving = asyncio.create_task(one.tries(allowance))
    await asyncio.sleep(0)  # it has asked
    leaving.cancel()
    await asyncio.wait({leaving})
    await _settled(redis)
    await until(lambda: _admits(other, allowance))


async def test_of_whatever_happens_no_place_is_left_over_and_there_are_never_too_many(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    allowance, running, most, rng = Allowance(concurrency=6), 0, 0, random.Random(7)

    async def come_and_go() -> None:
        nonlocal running, most
        for _ in range(20):
            asking = asyncio.create_task(rng.choice(parts).tries(allowance))
            for _ in range(rng.choice([0, 1, 2, 50])):
                await asyncio.sleep(0)
            if rng.random() < 0.3:
                asking.cancel()
            await asyncio.wait({asking})
            if asking.cancelled() or isinstance(outcome := asking.result(), QuotaExceeded):
                continue
            assert not outcome.local
            running += 1
            most = max(most, running)
            await asyncio.sleep(rng.random() / 100)
            running -= 1
            outcome.settle(1)

    await asyncio.gather(*(come_and_go() for _ in range(30)))
    assert 1 < most <= 6
    await _settled(redis)
    for _ in range(2):
        assert len(admitted([await part.tries(allowance) for part in parts])) == 2


async def test_places_are_held_while_requests_run_and_come_back_when_their_gateway_is_gone(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis, lease_s=0.6) as doomed, taking_part(redis, lease_s=0.6) as other:
        (reservation,) = admitted([await doomed.tries(allowance)])
        async with redis.client() as client:
            (_, ends), *_ = await client.zrange("hedgerow:quota:{acme}:leases", 0, -1, withscores=True)
            await until(lambda: _now_is_after(client, ends))  # without a renewal it would be over by now
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        doomed.running.cancel()
        await asyncio.wait({doomed.running})  # nothing is renewed any more, as after a kill
        await until(lambda: _admits(other, allowance))
        assert not reservation.local


async def _now_is_after(client: Any, ends: float) -> bool:
    seconds, microseconds = await client.time()
    return seconds + microseconds / 1e6 > ends


async def test_a_gateway_that_stops_gives_back_what_has_ended_before_it_goes(redis: RedisProcess):
    allowance = Allowance(concurrency=1)
    async with taking_part(redis) as leaving, taking_part(redis) as other:
        (reservation,) = admitted([await leaving.tries(allowance)])
        reservation.settle(1)
        leaving.running.cancel()
        await asyncio.wait({leaving.running})
        assert await _admits(other, allowance)


async def test_without_redis_each_gateway_decides_and_knows_what_runs(redis: RedisProcess, parts: tuple[Part, Part]):
    one, _ = parts
    allowance = Allowance(concurrency=2)
    admitted([await one.tries(allowance)])
    await redis.kill()
    (alone,) = admitted([await one.tries(allowance)])
    assert "Redis" in alone.local
    assert isinstance(await one.tries(allowance), QuotaExceeded)


async def test_what_was_admitted_without_redis_counts_everywhere_when_it_is_back(redis: RedisProcess):
    allowance = Allowance(concurrency=2)
    async with taking_part(redis) as one, taking_part(redis) as other:
        before = admitted([await one.tries(allowance)])
        await redis.kill()
        meanwhile = admitted([await one.tries(allowance)])
        await until(lambda: _is_away(other, allowance))
        await redis.start()
        await until(lambda: one.state.up and other.state.up)
        await _settled(redis, running=2)
        assert isinstance(await other.tries(allowance), QuotaExceeded)
        for reservation in (*before, *meanwhile):
            reservation.settle(1)
        await until(lambda: _admits(other, allowance))


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
        assert all(reservation.local for reservation in admitted(outcomes))


async def test_a_redis_that_has_forgotten_its_scripts_learns_them_again(redis: RedisProcess, parts: tuple[Part, Part]):
    async with redis.client() as client:
        await client.script_flush()
    one, _ = parts
    await one.tries(Allowance(concurrency=5))
    await until(lambda: one.state.up)
    (reservation,) = admitted([await one.tries(Allowance(concurrency=5))])
    assert not reservation.local


async def test_a_conversation_has_one_place_at_all_gateways_and_its_turns_have_none(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    one, other = parts
    allowance = Allowance(concurrency=2, requests_per_s=_SLOW, requests_burst=2, tokens_per_minute=60)
    first = await one.tries(allowance, 0, claim=CONVERSATION)
    turns = admitted([await one.tries(allowance, 30, claim=TURN) for _ in range(2)])
    second = await other.tries(allowance, 0, claim=CONVERSATION)
    conversations = admitted([first, second])
    assert len(conversations) == 2
    refused = await one.tries(allowance, 0, claim=CONVERSATION)
    assert isinstance(refused, QuotaExceeded)
    assert refused.metadata["quota"] == "concurrency"
    refused = await one.tries(allowance, 0, claim=TURN)
    assert isinstance(refused, QuotaExceeded)
    assert refused.metadata["quota"] == "requests"
    for turn in turns:
        turn.settle(10)
    await _settled(redis, running=2)
    async with redis.client() as client:
        await until(lambda: _has_tokens(client, 40))
    for conversation in conversations:
        conversation.settle(0)
    await until(lambda: _admits(other, Allowance(concurrency=1)))


async def test_what_was_admitted_without_redis_costs_its_tenant_what_it_used(redis: RedisProcess):
    allowance = Allowance(tokens_per_minute=1_000)
    async with taking_part(redis) as part:
        await redis.kill()
        (reservation,) = admitted([await part.tries(allowance, 600)])
        assert reservation.local
        await redis.start()
        await until(lambda: part.state.up)
        await _settled(redis, running=1)  # its lease is there
        reservation.settle(500)
        async with redis.client() as client:
            await until(lambda: _has_tokens(client, 500))


async def _has_tokens(client: Any, tokens: float) -> bool:
    """Whether the tenant has about so many left; some come by themselves."""
    level = await client.hget("hedgerow:quota:{acme}", "tokens_level")
    return level is not None and tokens <= float(level) < tokens + 100
