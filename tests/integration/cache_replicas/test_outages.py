"""Replicas that lose their Redis, or what it held, and find it again."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from services.cache import redis_entries, snapshot
from services.cache.answers import Verdict
from services.cache.errors import Conflict, NotRemoved
from services.cache.redis_scripts import CHANGES, ENTRY, SEQUENCE
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
from tests.waiting import until


async def test_entries_removed_elsewhere_are_served_locally_until_the_replica_is_back(
    redis: RedisProcess, pair: Pair
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await a.keep(OTHER, b"a thing")
    await up_to_date(a, b)
    a.state.lose("the test says so")
    assert await b.remove(CAPITAL) == 1
    while (found := await a.look_up(CAPITAL)).local:
        assert found.verdict in (Verdict.EXACT, Verdict.MISS)
        await asyncio.sleep(0)
    assert found.verdict is Verdict.MISS
    assert a.memory.stats.snapshots == 1, "the stream continues at its position"
    assert a.holds() == b.holds() == await kept(redis) == {OTHER.key: b"a thing"}


async def test_an_entry_removed_during_a_snapshot_is_not_served_after_it(client: Any, pair: Pair) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await a.keep(OTHER, b"a thing")
    await up_to_date(a, b)
    load = snapshot.load

    async def slowly(*arguments: Any) -> snapshot.Snapshot:
        loaded = await load(*arguments)
        await b.remove(CAPITAL)
        return loaded

    with patch.object(snapshot, "load", slowly):
        a.state.lose("the test says so")
        await client.xtrim(CHANGES, maxlen=0, approximate=False)
        a.store._follower.sequence = 1  # far behind
        while (found := await a.look_up(CAPITAL)).local:
            await asyncio.sleep(0)
    assert found.verdict is Verdict.MISS
    assert a.memory.stats.snapshots == 2


async def test_an_answer_that_was_begun_before_a_removal_is_not_stored_when_redis_is_back_either(
    redis: RedisProcess, pair: Pair
) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    await up_to_date(a, b)
    epoch = a.answers.epoch
    await b.remove_tenant("acme")
    await redis.kill()
    await until(lambda: _away(a))
    assert await a.keep(CAPITAL, b"old", epoch=epoch) is False
    await redis.start()
    await up_to_date(a, b)
    with pytest.raises(Conflict):
        await a.keep(CAPITAL, b"old", epoch=epoch)
    assert await a.keep(THEIRS, b"kept", epoch=epoch)
    assert await agreed(redis, a, b) == {THEIRS.key: b"kept"}


async def test_a_removal_and_a_store_under_way_at_the_loss_of_redis_both_fail(redis: RedisProcess, pair: Pair) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(a, b)
    epoch = a.answers.epoch
    redis.stop()
    removing = asyncio.create_task(a.remove(CAPITAL))
    await asyncio.sleep(0)
    storing = asyncio.create_task(a.keep(CAPITAL, b"old", epoch=epoch))
    await until(lambda: a.store._writes._worker is not None)
    a.state.lose("the test says so")
    redis.cont()
    with pytest.raises(NotRemoved):
        await removing
    assert await storing is False
    await agreed(redis, a, b)
    assert set(a.holds().values()) <= {b"Paris"}, "Redis may have received the removal; the store came after it"


async def test_an_answer_that_was_begun_before_redis_was_emptied_is_not_stored(client: Any, pair: Pair) -> None:
    a, b = pair
    await a.keep(THEIRS, b"kept")
    await up_to_date(a, b)
    epoch = a.answers.epoch
    await b.remove_tenant("acme")
    await client.flushall()
    for one in pair:  # whether or not it has noticed
        with pytest.raises(Conflict):
            await one.store.insert(entry(CAPITAL), None, epoch)
    await until(lambda: _loaded(a, 2))
    await up_to_date(a, b)
    assert (a.holds(), b.holds()) == ({}, {})
    for one in pair:
        with pytest.raises(Conflict):
            await one.keep(CAPITAL, b"old", epoch=epoch)
    assert await a.keep(CAPITAL, b"new", epoch=a.answers.epoch)


@pytest.mark.parametrize("where", ["at its end", "before its end"])
async def test_a_gap_in_the_stream_forces_a_snapshot(redis: RedisProcess, client: Any, pair: Pair, where: str) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    await up_to_date(a, b)
    known = await redis_entries.last_sequence(client)
    puts = [another()._script(redis_entries.Put(entry(question), None, known)) for question in (CAPITAL, THEIRS)]
    async with client.pipeline(transaction=True) as together:
        together.eval(puts[0][0], 0, 100, *puts[0][1])
        together.xtrim(CHANGES, maxlen=0, approximate=False)
        together.unlink(ENTRY + OTHER.key)
        if where == "before its end":
            together.eval(puts[1][0], 0, 100, *puts[1][1])
        await together.execute()
    await agreed(redis, a, b)
    assert a.holds().keys() == {CAPITAL.key} | ({THEIRS.key} if where == "before its end" else set())
    assert [each.memory.stats.snapshots for each in pair] == [2, 2]


async def test_a_redis_that_refuses_writes_is_there_for_everything_else(redis: RedisProcess, client: Any) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Paris")
        await client.config_set("min-replicas-to-write", 1)
        with one.memory.watchers.watch() as watch:
            heard = asyncio.ensure_future(anext(watch))
            assert not await one.keep(OTHER, b"a thing")
            with pytest.raises(NotRemoved):
                await one.remove(CAPITAL)
            one.answers.sweep()
            found = await one.look_up(CAPITAL)
            assert (found.verdict, found.local) == (Verdict.EXACT, False)
            await client.config_set("min-replicas-to-write", 0)
            assert await one.remove(CAPITAL) == 1
            assert (await heard).key == CAPITAL.key


async def test_a_redis_without_room_stores_nothing_and_removes_and_tightens(
    redis: RedisProcess, pair: Pair, client: Any
) -> None:
    a, b = pair
    for question in (CAPITAL, OTHER, THEIRS):
        await a.keep(question, b"an answer")
    await client.config_set("maxmemory", 1)
    assert not await a.keep(REWORDED, b"more")
    assert await a.store.tighten(OTHER.key, OTHER.tenant, 0.99)
    assert await a.remove(CAPITAL) == 1
    assert await a.remove_tenant(THEIRS.tenant) == 1
    assert await agreed(redis, a, b) == {OTHER.key: b"an answer"}
    assert [each.least_score for each in b.memory.entries] == [0.99]


async def test_a_redis_with_an_invalid_sequence_number_counts_as_away(redis: RedisProcess, client: Any) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Paris")
        await client.set(SEQUENCE, "none")
        await until(lambda: _away(one))
        assert (await one.look_up(CAPITAL)).local
        await client.delete(SEQUENCE)
        await up_to_date(one)
        assert not (await one.look_up(CAPITAL)).local


async def test_watches_end_with_redis_and_are_in_force_again_when_it_is_back(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        await one.memory.watchers.in_force()
        with one.memory.watchers.watch() as removals:
            await redis.kill()
            assert [removal async for removal in removals] == []
        again = asyncio.create_task(one.memory.watchers.in_force())
        await redis.start()
        await again


async def test_an_unknown_change_makes_replicas_load_a_snapshot(redis: RedisProcess, client: Any, pair: Pair) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(a, b)
    last = await redis_entries.last_sequence(client)
    await client.xadd(CHANGES, {"op": "rename"}, id=f"{last + 1}-0")  # as a later version might
    await client.set(SEQUENCE, last + 1)
    await until(lambda: _loaded(a, 2))
    await b.keep(OTHER, b"a thing")
    await agreed(redis, a, b)


async def _away(one: Replica) -> bool:
    return one.store.local


async def _loaded(one: Replica, times: int) -> bool:
    return one.memory.stats.snapshots >= times and one.state.up
