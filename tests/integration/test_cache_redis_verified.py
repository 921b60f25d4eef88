"""Replicas share what was verified, on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from services.cache.redis_scripts import VERIFIED
from services.cache.verdict.record import SAMPLE_BYTES
from services.cache.verdict.thresholds import Thresholds
from tests.integration.replicas import Replica, replica, up_to_date
from tests.redis import RedisProcess, redis_server
from tests.waiting import until

pytestmark = pytest.mark.redis
DEFAULT = 0.95


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
async def two(redis: RedisProcess) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(replica(redis.url)) for _ in range(2)]


def verify(one: Replica, tenant: str, count: int, right: bool = True) -> None:
    for _ in range(count):
        for candidate in (True, False, False, False):
            one.memory.thresholds.look_up(tenant, candidate)
        one.memory.thresholds.verify(tenant, 0.99, True, right)


def samples(thresholds: Thresholds, tenant: str) -> int:
    record = thresholds._held(tenant)
    return record.count if record else 0


async def swept(redis: RedisProcess, one: Replica, tenant: str, count: int) -> None:
    """Sweeps until a replica knows of so many samples, and Redis has them."""
    async with redis.client() as client:

        async def known() -> bool:
            one.answers.sweep()
            shared = await client.hstrlen(f"{VERIFIED}engine:{tenant}", "samples")
            return samples(one.memory.thresholds, tenant) == count == shared // SAMPLE_BYTES

        await until(known)


async def test_each_replica_goes_on_from_what_all_of_them_verified(redis: RedisProcess, two: list[Replica]) -> None:
    for one in two:
        verify(one, "acme", 70)
        assert one.memory.thresholds.of("acme") == DEFAULT  # too few
    await swept(redis, two[0], "acme", 70)
    await swept(redis, two[1], "acme", 140)
    verify(two[0], "acme", 1)
    await swept(redis, two[0], "acme", 141)
    assert two[0].memory.thresholds.of("acme") < DEFAULT
    async with replica(redis.url) as third:
        assert third.memory.thresholds.of("acme") == two[0].memory.thresholds.of("acme")
        assert samples(third.memory.thresholds, "") == 141
        assert third.memory.thresholds.of("globex") == DEFAULT


async def test_a_tenant_that_was_removed_is_forgotten_by_all_also_by_one_that_had_news(
    redis: RedisProcess, two: list[Replica]
) -> None:
    for tenant in ("acme", "globex"):
        verify(two[0], tenant, 200)
    await swept(redis, two[0], "acme", 200)
    verify(two[1], "globex", 1)
    await swept(redis, two[1], "globex", 201)
    verify(two[1], "acme", 5)
    late = two[1].memory.thresholds._tenants["acme"]
    await two[0].remove_tenant("acme")
    await up_to_date(redis, *two)
    assert [one.memory.thresholds.of("acme") for one in two] == [DEFAULT, DEFAULT]
    two[1].memory.thresholds._tenants["acme"] = late  # it has not heard of it yet
    async with redis.client() as client:
        await two[1].store._verified.add(client, two[1].store.sequence - 1, 0)
    assert not late.has_news  # it was sent
    async with replica(redis.url) as third:
        assert samples(third.memory.thresholds, "acme") == 0
        assert third.memory.thresholds.of("globex") < DEFAULT


async def test_what_is_verified_while_redis_is_away_is_added_when_it_is_back(
    redis: RedisProcess, two: list[Replica]
) -> None:
    verify(two[0], "acme", 70)
    await swept(redis, two[0], "acme", 70)
    two[0].state.lose("the test says so")
    verify(two[0], "acme", 70)
    two[0].answers.sweep()
    await until(lambda: two[0].state.up)
    two[0].answers.sweep()
    verify(two[1], "acme", 1)
    await swept(redis, two[1], "acme", 141)


@pytest.mark.parametrize("junk", [{"samples": b"\xff"}, {"lookups": "many"}, {"threshold": "nan"}])
async def test_a_damaged_record_in_redis_is_forgotten_and_the_replica_goes_on(
    redis: RedisProcess, two: list[Replica], junk: dict[str, str | bytes]
) -> None:
    verify(two[0], "acme", 200)
    verify(two[0], "globex", 200)
    await swept(redis, two[0], "acme", 200)
    async with redis.client() as client:
        await until(lambda: client.hexists(f"{VERIFIED}engine:globex", "samples"))
        await client.hset(f"{VERIFIED}engine:acme", mapping=junk)
    async with replica(redis.url) as third:
        assert third.memory.thresholds.of("acme") == DEFAULT
        assert third.memory.thresholds.of("globex") < DEFAULT
        verify(third, "acme", 3)
        await swept(redis, third, "acme", 3)
        assert third.state.up
