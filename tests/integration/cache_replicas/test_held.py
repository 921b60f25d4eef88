"""Entries in Redis and in replicas, and how long they stay."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import numpy as np

from services.cache import redis_entries
from services.cache.answers import Verdict
from services.cache.redis_scripts import BYTES, CHANGES, ENTRY, HELD, SIZES, TENANT, USED
from services.runtime.deadline import Deadline
from tests.integration.cache_replicas.replicas import (
    CAPITAL,
    OTHER,
    REWORDED,
    THEIRS,
    Pair,
    Replica,
    agreed,
    another,
    entry,
    kept,
    replica,
    up_to_date,
)
from tests.redis import RedisProcess
from tests.unit.cache.conftest import DIMENSION, identity
from tests.waiting import until


async def flood(cache: Replica, answers: int) -> None:
    """Keep so many answers of 10 KB of one tenant."""
    for first in range(0, answers, 50):
        questions = (identity(f"why is {number}") for number in range(first, first + 50))
        await asyncio.gather(*(cache.keep(question, b"x" * 10_000) for question in questions))


async def test_an_entry_that_expired_before_its_notification_leaves_nothing(client: Any, pair: Pair) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(a, b)
    known = await redis_entries.last_sequence(client)
    ended = redis_entries.Put(entry(CAPITAL, b"Lyon", ttl_ms=-1_000), None, known)
    assert [each.conflict for each in await another().write(client, [ended])] == [False]
    assert not await client.exists(ENTRY + CAPITAL.key)
    await up_to_date(a, b)
    assert a.holds() == b.holds() == {}
    assert (await b.look_up(REWORDED, 0.8)).verdict is Verdict.MISS


async def test_an_entry_without_room_here_is_asked_for_and_stays_in_redis(redis: RedisProcess) -> None:
    async with replica(redis.url, max_entries=1) as small, replica(redis.url) as large:
        await small.keep(CAPITAL, b"Paris")
        assert not small.memory.overflowed
        await small.keep(OTHER, b"a thing")
        assert list(small.holds()) == [OTHER.key]
        assert small.memory.overflowed
        for question, answer in ((CAPITAL, b"Paris"), (OTHER, b"a thing")):
            found = await small.look_up(question)
            assert found.entry
            assert (found.verdict, found.entry.answer) == (Verdict.EXACT, answer)
        assert (await small.look_up(REWORDED, 0.8)).verdict is Verdict.MISS  # by meaning only what is here is found
        assert len(await kept(redis)) == 2
        await up_to_date(small, large)
        await large.remove(CAPITAL)
        assert (await small.look_up(CAPITAL)).verdict is Verdict.MISS


async def test_a_replica_starts_with_what_was_used_last(redis: RedisProcess, client: Any) -> None:
    questions = [identity(f"what is {number}") for number in range(3)]
    async with replica(redis.url) as before:
        for question in questions:
            await before.keep(question, b"x")
        await asyncio.sleep(0.002)  # uses are ordered by the millisecond
        await before.look_up(questions[0])
        before.answers.sweep()

        async def used_last() -> bool:
            return (await redis_entries.recent(client, "acme", 0, 1)) == [questions[0].key]

        await until(used_last)
    async with replica(redis.url, max_entries=1) as after:
        assert list(after.holds()) == [questions[0].key]
        assert (await after.look_up(questions[1])).verdict is Verdict.EXACT


async def test_a_flood_of_one_tenant_leaves_what_another_has_in_redis_and_in_memory(
    redis: RedisProcess, client: Any
) -> None:
    theirs = [identity(f"what is {number}", tenant="globex") for number in range(20)]
    await client.config_set("maxmemory", "12mb")
    await client.config_set("maxmemory-policy", "volatile-lru")
    async with replica(redis.url) as one:
        for question in theirs:
            await one.keep(question, b"x" * 1_000)
        await flood(one, 2_000)
        left = await kept(redis)
        assert {question.key for question in theirs} <= left.keys()
        assert 20 < len(left) < 1_000
    assert (await client.info("stats"))["evicted_keys"] == 0  # Redis' own eviction knows no tenants
    sizes = [int(size) for tenant in ("acme", "globex") for size in await client.hvals(SIZES + tenant)]
    assert int(await client.get(BYTES)) == sum(sizes) <= 12 * 2**20 * 0.8
    async with replica(redis.url, max_entries=40) as restarted:
        assert {question.key for question in theirs} <= restarted.holds().keys()
        assert len(restarted.holds()) == 40
        assert restarted.memory.overflowed


async def test_entries_leave_what_else_is_in_redis_its_room_and_the_tenant_with_the_most_makes_it(
    redis: RedisProcess, client: Any
) -> None:
    theirs = [identity(f"what is {number}", tenant="globex") for number in range(20)]
    await client.config_set("maxmemory", "12mb")
    await client.config_set("maxmemory-policy", "volatile-lru")
    for number in range(5):  # as stored responses
        await client.set(f"hedgerow:responses:{{acme}}:{number}", b"x" * 2**20, ex=600)
    async with replica(redis.url) as one:
        for question in theirs:
            await one.keep(question, b"x" * 1_000)
        await flood(one, 1_000)
        assert {question.key for question in theirs} <= (await kept(redis)).keys()
    assert (await client.info("stats"))["evicted_keys"] == 0


async def test_removed_entries_do_not_count_in_redis(redis: RedisProcess, client: Any) -> None:
    async with replica(redis.url) as one:
        for question in (CAPITAL, OTHER, REWORDED, THEIRS, THEIRS):
            await one.keep(question, b"x" * 1_000)
        await one.remove(CAPITAL)
        await one.remove_tenant("globex")
        held = await client.zrange(HELD, 0, -1, withscores=True)
        assert held == [(b"acme", float(await client.get(BYTES)))]
        await one.remove_tenant("acme")
        assert int(await client.get(BYTES)) == 0
        assert not await client.exists(HELD, SIZES + "acme", SIZES + "globex", USED + "acme", USED + "globex")


async def test_a_tenant_with_many_entries_is_removed_in_steps(redis: RedisProcess, pair: Pair, client: Any) -> None:
    one, _ = pair
    with patch.object(redis_entries, "_THINNED", 2):
        await one.keep(THEIRS, b"Paris")
        for number in range(7):
            await one.keep(identity(f"what is {number}"), b"x")
        assert await one.remove_tenant("acme") == 7
    (*_, news) = await redis_entries.changes_after(client, 1, 100, None)
    assert (news.op, news.entries) == ("delete_tenant", 1), "Redis answers others between"
    assert await agreed(redis, *pair) == {THEIRS.key: b"Paris"}
    assert await client.zrange(HELD, 0, -1, withscores=True) == [(b"globex", float(await client.get(BYTES)))]


async def test_a_wrong_hit_that_redis_has_evicted_is_none_of_any_replica(pair: Pair, client: Any) -> None:
    one, other = pair
    await one.keep(CAPITAL, b"Paris")
    await up_to_date(*pair)
    await client.unlink(ENTRY + CAPITAL.key)  # as Redis does when it is full
    assert (await other.look_up(REWORDED, 0.5)).verdict is Verdict.SEMANTIC
    assert not await other.answers.wrong("globex", CAPITAL.key, None, Deadline.never())
    assert await other.answers.wrong("acme", CAPITAL.key, REWORDED.asked, Deadline.never())
    await up_to_date(*pair)
    assert [(await each.look_up(REWORDED, 0.5)).verdict for each in pair] == [Verdict.MISS, Verdict.MISS]


async def test_a_wrong_hit_may_be_reported_to_a_replica_that_never_had_the_entry(
    pair: Pair, client: Any, redis: RedisProcess
) -> None:
    await pair[0].keep(CAPITAL, b"Paris")
    await up_to_date(*pair)
    await client.unlink(ENTRY + CAPITAL.key)  # as Redis does when it is full
    async with replica(redis.url) as new:
        await new.answers.wrong("globex", CAPITAL.key, None, Deadline.never())
        await up_to_date(*pair)
        assert [(await each.look_up(REWORDED, 0.5)).verdict for each in pair] == [Verdict.SEMANTIC, Verdict.SEMANTIC]
        await new.answers.wrong("acme", CAPITAL.key, REWORDED.asked, Deadline.never())
    await up_to_date(*pair)
    assert [(await each.look_up(REWORDED, 0.5)).verdict for each in pair] == [Verdict.MISS, Verdict.MISS]


async def test_embeddings_of_another_engine_are_not_compared(redis: RedisProcess) -> None:
    with patch("tests.unit.cache.conftest.BagOfWords.name", "another"):
        async with replica(redis.url) as other:
            await other.keep(CAPITAL, b"Paris")
    async with replica(redis.url) as ours:
        assert (await ours.look_up(REWORDED, 0.8)).verdict is Verdict.MISS
        assert (await ours.look_up(CAPITAL)).verdict is Verdict.EXACT


async def test_an_expired_answer_stands_in_on_every_replica_and_redis_expires_it_automatically(
    client: Any, pair: Pair
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris", ttl_ms=1)
    await up_to_date(a, b)

    async def stale() -> bool:
        return (await b.look_up(CAPITAL)).stale is not None

    await until(stale)
    assert 0 < await client.pttl(ENTRY + CAPITAL.key) <= 60_001


async def test_the_indexes_of_an_expired_entry_are_removed_too(client: Any) -> None:
    ended = redis_entries.Put(entry(CAPITAL, ttl_ms=-1_000), None, await another().begin(client))
    assert [each.conflict for each in await another().write(client, [ended])] == [False]
    assert await client.zcard(USED + "acme") == 1
    await another().touch(client, [])
    assert await client.exists(USED + "acme", TENANT + "acme", SIZES + "acme", HELD) == 0
    assert int(await client.get(BYTES)) == 0


async def test_a_damaged_entry_is_passed_over(redis: RedisProcess, client: Any) -> None:
    async with replica(redis.url) as before:
        await before.keep(CAPITAL, b"Paris")
        await before.keep(OTHER, b"a thing")
    await client.hset(ENTRY + CAPITAL.key, "expires_at_ms", "soon")
    async with replica(redis.url) as after:
        assert list(after.holds()) == [OTHER.key]


async def test_replicas_of_the_first_version_can_read_the_stream(redis: RedisProcess, client: Any) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Paris")
        await one.remove(CAPITAL)
    changes = [fields for _, fields in await client.xrange(CHANGES)]
    names = {b"before", b"op", b"what", b"tenant", b"entries", b"origin", b"number"}
    assert [fields.keys() for fields in changes] == [names, names]
    assert [int(fields[b"number"]) for fields in changes] == [0, 0]  # kept for that version


async def test_vectors_come_back_as_they_were(client: Any) -> None:
    vector = np.linspace(0, 1, DIMENSION, dtype=np.float32)
    await another().write(client, [redis_entries.Put(entry(CAPITAL), vector, await another().begin(client))])
    stored = await another().read(client, [CAPITAL.key, OTHER.key])
    assert stored[0]
    assert stored[0][1] is not None
    assert (stored[0][1] == vector).all()
    assert stored[1] is None
