"""Tenants' quotas of several gateways, on a real Redis."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from services.gateway.admission.quota import CONVERSATION, TURN, Allowance, Claim, QuotaExceeded, Reservation
from tests.integration.shared_quotas.parts import SLOW, Part, admits, admitted, has_tokens, settled
from tests.redis import RedisProcess
from tests.waiting import until


@pytest.mark.parametrize(
    ("allowance", "tokens", "limit", "quota"),
    [
        (Allowance(concurrency=7), 1, 7, "concurrency"),
        (Allowance(requests_per_s=SLOW, requests_burst=7), 1, 7, "requests"),
        (Allowance(tokens_per_minute=2), 1, 2, "tokens"),
    ],
)
async def test_many_at_once_at_two_gateways_get_what_there_is_and_no_more(
    parts: tuple[Part, Part], allowance: Allowance, tokens: int, limit: int, quota: str
):
    outcomes = await asyncio.gather(*(part.tries(allowance, tokens) for _ in range(40) for part in parts))
    assert len(admitted(outcomes)) == limit
    assert not any(reservation.local_reason for reservation in admitted(outcomes))
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuotaExceeded)]
    assert Counter(each.metadata["quota"] for each in refused) == {quota: 80 - limit}
    assert all(each.retry_delay_s > 0 for each in refused)


async def test_cost_beyond_the_estimate_is_a_debt_at_every_gateway(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(tokens_per_minute=1)  # so slow that none is refilled during the test
    (reservation,) = admitted([await one.tries(allowance, tokens=1)])
    reservation.settle(31)
    await settled(redis)
    refused = await other.tries(allowance, tokens=1)
    assert isinstance(refused, QuotaExceeded)
    assert 30 * 60 < refused.retry_delay_s <= 31 * 60
    assert "0 of 1 tokens a minute left and 30 owed, 1 needed" in refused.message


async def test_a_new_allowance_holds_at_all_gateways_and_is_no_gift(parts: tuple[Part, Part]):
    one, other = parts
    few, many = Allowance(requests_per_s=SLOW, requests_burst=2), Allowance(requests_per_s=SLOW, requests_burst=50)
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
    allowance = Allowance(requests_per_s=SLOW, requests_burst=1)
    assert len(admitted([await one.tries(allowance, tenant="flood") for _ in range(5)])) == 1
    assert isinstance(await other.tries(allowance, tenant="calm"), Reservation)


async def test_any_sequence_of_events_leaves_no_slot_taken_and_never_exceeds_the_limit(
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
            assert not outcome.local_reason
            running += 1
            most = max(most, running)
            await asyncio.sleep(rng.random() / 100)
            running -= 1
            outcome.settle(1)

    await asyncio.gather(*(come_and_go() for _ in range(30)))
    assert 1 < most <= 6
    await settled(redis)
    for _ in range(2):
        assert len(admitted([await part.tries(allowance) for part in parts])) == 2


async def test_several_requests_are_admitted_together_or_not_at_all(redis: RedisProcess, parts: tuple[Part, Part]):
    one, other = parts
    allowance = Allowance(concurrency=4, requests_per_s=SLOW, requests_burst=5)
    (three,) = admitted([await one.tries(allowance, 30, claim=Claim(3, 3))])
    refused = await other.tries(allowance, 20, claim=Claim(2, 2))
    assert isinstance(refused, QuotaExceeded)
    assert "3 of 4 requests at once, 2 needed" in refused.message
    three.settle(0)
    await settled(redis)
    refused = await other.tries(allowance, 30, claim=Claim(3, 3))
    assert isinstance(refused, QuotaExceeded)
    assert "3 needed together" in refused.message
    admitted([await other.tries(allowance, 20, claim=Claim(2, 2))])[0].settle(0)
    await settled(redis)


async def test_a_conversation_counts_once_at_all_gateways_and_its_turns_do_not(
    redis: RedisProcess, parts: tuple[Part, Part]
):
    one, other = parts
    allowance = Allowance(concurrency=2, requests_per_s=SLOW, requests_burst=2, tokens_per_minute=60)
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
    await settled(redis, running=2)
    async with redis.client() as client:
        await until(lambda: has_tokens(client, 40))
    for conversation in conversations:
        conversation.settle(0)
    await until(lambda: admits(other, Allowance(concurrency=1)))
