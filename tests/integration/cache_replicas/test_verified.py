"""Replicas share what was verified, on a real Redis."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import pytest

from services.cache import redis_verified
from services.cache.redis_scripts import VERIFIED
from services.cache.redis_verified import RedisVerified
from services.cache.semantic_match import record
from services.cache.semantic_match.record import SAMPLE_BYTES
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from services.runtime.shared_state import SharedStateLost
from tests.integration.cache_replicas.replicas import Pair, Replica, now_ms, replica, up_to_date
from tests.redis import RedisProcess
from tests.waiting import until

DEFAULT, MOST = 0.95, 50
ACME, GLOBEX = Traffic("acme"), Traffic("globex")
CHAT, DOSAGES, THEIRS = Traffic("acme", "chat"), Traffic("acme", "dosages"), Traffic("globex", "dosages")


def verify(one: Replica, tenant: str, count: int, right: bool = True, category: str = "") -> None:
    traffic = Traffic(tenant, category)
    for _ in range(count):
        for candidate in (True, False, False, False):
            one.memory.thresholds.look_up(traffic, candidate)
        one.memory.thresholds.verify(traffic, 0.99, True, right)


def samples(thresholds: Thresholds, tenant: str, category: str = "") -> int:
    record = thresholds._held(Traffic(tenant, category))
    return record.count if record else 0


async def swept(redis: RedisProcess, one: Replica, tenant: str, count: int, category: str = "") -> None:
    """Sweeps until a replica knows of so many samples, and Redis has them."""
    async with redis.client() as client:

        async def known() -> bool:
            one.answers.sweep()
            shared = await client.hstrlen(f"{VERIFIED}engine:{tenant}", f"{category}:samples".removeprefix(":"))
            return samples(one.memory.thresholds, tenant, category) == count == shared // SAMPLE_BYTES

        await until(known)


async def test_each_replica_continues_from_the_samples_of_all(redis: RedisProcess, pair: Pair) -> None:
    for one in pair:
        verify(one, "acme", 70)
        assert one.memory.thresholds.of(ACME) == DEFAULT  # too few
    await swept(redis, pair[0], "acme", 70)
    await swept(redis, pair[1], "acme", 140)
    verify(pair[0], "acme", 1)
    await swept(redis, pair[0], "acme", 141)
    assert pair[0].memory.thresholds.of(ACME) < DEFAULT
    async with replica(redis.url) as third:
        assert third.memory.thresholds.of(ACME) == pair[0].memory.thresholds.of(ACME)
        assert samples(third.memory.thresholds, "") == 141
        assert third.memory.thresholds.of(GLOBEX) == DEFAULT


async def test_samples_during_an_outage_of_redis_are_added_afterwards(redis: RedisProcess, pair: Pair) -> None:
    verify(pair[0], "acme", 70)
    await swept(redis, pair[0], "acme", 70)
    pair[0].state.lose("the test says so")
    verify(pair[0], "acme", 70)
    pair[0].answers.sweep()
    await until(lambda: pair[0].state.up)
    pair[0].answers.sweep()
    verify(pair[1], "acme", 1)
    await swept(redis, pair[1], "acme", 141)


@pytest.mark.parametrize("junk", [{"samples": b"\xff"}, {"lookups": "many"}, {"threshold": "nan"}])
async def test_a_damaged_record_in_redis_is_forgotten_and_the_replica_goes_on(
    redis: RedisProcess, client: Any, pair: Pair, junk: dict[str, str | bytes]
) -> None:
    verify(pair[0], "acme", 200)
    verify(pair[0], "globex", 200)
    await swept(redis, pair[0], "acme", 200)
    await until(lambda: client.hexists(f"{VERIFIED}engine:globex", "samples"))
    await client.hset(f"{VERIFIED}engine:acme", mapping=junk)
    async with replica(redis.url) as third:
        assert third.memory.thresholds.of(ACME) == DEFAULT
        assert third.memory.thresholds.of(GLOBEX) < DEFAULT
        verify(third, "acme", 3)
        await swept(redis, third, "acme", 3)
        assert third.state.up


async def test_replicas_add_up_each_category_separately(redis: RedisProcess, pair: Pair) -> None:
    for one, tenants in zip(pair, (("acme", "globex"), ("acme",)), strict=True):
        for tenant in tenants:
            verify(one, tenant, 70, category="dosages")
    verify(pair[1], "acme", 30, category="chat")
    await swept(redis, pair[0], "acme", 70, "dosages")
    await swept(redis, pair[1], "acme", 140, "dosages")
    async with replica(redis.url) as third:
        kept = third.memory.thresholds
        assert [samples(kept, *each) for each in (DOSAGES, CHAT, THEIRS, ACME)] == [140, 30, 70, 0]
        assert samples(kept, "") == 240
        assert kept.of(DOSAGES) == pair[1].memory.thresholds.of(DOSAGES) < DEFAULT
        assert kept.of(CHAT) == kept.of(ACME) == kept.of(THEIRS) == DEFAULT


@pytest.mark.parametrize("category", ["", "dosages"])
async def test_a_tenant_that_was_removed_is_forgotten_in_all_its_categories_also_by_a_replica_with_news(
    redis: RedisProcess, client: Any, pair: Pair, category: str
) -> None:
    for each in ("", "chat", "dosages"):
        verify(pair[0], "acme", 200, category=each)
    verify(pair[0], "globex", 200, category=category)
    await swept(redis, pair[0], "acme", 200, category)
    verify(pair[1], "globex", 1, category=category)
    await swept(redis, pair[1], "globex", 201, category)
    verify(pair[1], "acme", 5, category=category)
    late = pair[1].memory.thresholds._held(Traffic("acme", category))
    assert late
    await pair[0].remove_tenant("acme")
    await up_to_date(*pair)
    assert [one.memory.thresholds.of(each) for one in pair for each in (ACME, CHAT, DOSAGES)] == [DEFAULT] * 6
    pair[1].memory.thresholds._records._tenants["acme"] = OrderedDict(
        {category: late}
    )  # as if the removal had not arrived yet
    await pair[1].store._verified.add(lambda call: call(client), pair[1].store.sequence - 1)
    assert not await client.exists(f"{VERIFIED}engine:acme")
    assert not late.has_news  # it was sent
    async with replica(redis.url) as third:
        assert samples(third.memory.thresholds, "acme", category) == 0
        assert samples(third.memory.thresholds, "globex", category) == 201
        assert third.memory.thresholds.of(Traffic("globex", category)) < DEFAULT


async def test_samples_of_older_replicas_count_for_no_category(redis: RedisProcess, client: Any, pair: Pair) -> None:
    verify(pair[0], "acme", 200)
    verify(pair[0], "acme", 150, category="chat")
    await swept(redis, pair[0], "acme", 150, "chat")
    await client.hdel(f"{VERIFIED}engine:acme", "at", "max_wrong")  # they write none
    async with replica(redis.url) as third:
        kept = third.memory.thresholds
        assert [samples(kept, *each) for each in (ACME, CHAT)] == [200, 150]
        verify(third, "acme", 1)
        await swept(redis, third, "acme", 201)


async def test_a_damaged_category_costs_no_other_anything(redis: RedisProcess, client: Any, pair: Pair) -> None:
    for category in ("", "chat", "dosages"):
        verify(pair[0], "acme", 200, category=category)
    await swept(redis, pair[0], "acme", 200, "dosages")
    await client.hset(f"{VERIFIED}engine:acme", mapping={"chat:samples": b"\xff", "of:none": b"\xff"})
    async with replica(redis.url) as third:
        kept = third.memory.thresholds
        assert [samples(kept, *each) for each in (ACME, CHAT, DOSAGES)] == [200, 0, 200]
        verify(third, "acme", 3, category="chat")
        await swept(redis, third, "acme", 3, "chat")


async def test_a_tenant_with_very_many_categories_takes_no_others_record(
    redis: RedisProcess, client: Any, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (record, redis_verified):
        monkeypatch.setattr(module, "RECORDS", MOST)
    for tenant in ("acme", "globex"):
        verify(pair[0], tenant, 150, category="dosages")
    await swept(redis, pair[0], "globex", 150, "dosages")
    for number in range(2 * MOST):
        one = pair[number % 2]
        one.memory.thresholds.verify(Traffic("mallory", f"{number}"), 0.99, True, True)
    for one in pair:
        await one.store._verified.add(lambda call: call(client), one.store.sequence)
    theirs = await client.hlen(f"{VERIFIED}engine:mallory")
    assert theirs == 10 * (MOST - 2)
    async with replica(redis.url) as third:
        kept = third.memory.thresholds
        assert samples(kept, *DOSAGES) == samples(kept, *THEIRS) == 150
        assert len(list(kept._records)) == MOST


@pytest.mark.parametrize("call", [1, 2, 3])
async def test_thresholds_hold_where_redis_is_lost_while_records_are_read(
    redis: RedisProcess, client: Any, pair: Pair, call: int
) -> None:
    verify(pair[0], "acme", 200)
    await swept(redis, pair[0], "acme", 200)
    thresholds, calls = pair[0].memory.thresholds, count(1)
    known = thresholds.of(ACME)
    assert known < DEFAULT

    async def ask(work: Callable[[Any], Awaitable[Any]]) -> Any:
        if next(calls) == call:
            raise SharedStateLost("the test says so")
        return await work(client)

    with pytest.raises(SharedStateLost):
        await pair[0].store._verified.load(ask)
    assert thresholds.of(ACME) == known


async def test_however_many_records_there_are_a_call_has_few(client: Any) -> None:
    one, two = (RedisVerified(Thresholds(DEFAULT, 0.01, "engine")) for _ in range(2))
    traffic = [Traffic(f"{number % 50}", f"{number}") for number in range(150)]
    for each in traffic:
        one.thresholds.verify(each, 0.99, True, True)
    sizes = list[int]()

    async def ask(work: Any) -> Any:
        reply = await work(client)
        sizes.append(len(reply))
        return reply

    await one.add(ask, now_ms() * 1_000)
    assert (sum(sizes), max(sizes)) == (151, redis_verified._RECORDS)  # with that of all tenants
    sizes.clear()
    await two.load(ask)
    assert sizes[:2] == [51, 151]  # names
    assert max(sizes[2:]) == redis_verified._RECORDS
    assert {each for each, record in two.thresholds._records if record.count} == set(traffic)
