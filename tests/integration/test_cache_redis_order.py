"""What replicas agree on, whatever happens at once: several in one process, on a real Redis."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from services.cache import redis_entries, snapshot
from services.cache.answers import Verdict
from services.cache.entries import Entry
from services.cache.errors import Conflict, NotRemoved
from services.cache.keyed_question import KeyedQuestion
from services.cache.redis_entries import RedisEntries
from services.cache.redis_scripts import BYTES, CHANGES, ENTRY, HELD, SEQUENCE, SIZES, TENANT, USED
from services.cache.tombstones import Removal
from tests.integration.replicas import Replica, agreed, kept, replica, up_to_date
from tests.redis import RedisProcess, redis_server
from tests.unit.cache.conftest import DIMENSION, identity
from tests.waiting import until

CAPITAL = identity("what is the capital of france please")
REWORDED = identity("what is the capital of france really")
OTHER = identity("an entirely unrelated thing")
THEIRS = identity(CAPITAL.asked, tenant="globex")


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    async with redis_server(tmp_path, appendonly=True) as server:
        yield server


@pytest.fixture
async def pair(redis: RedisProcess) -> AsyncIterator[tuple[Replica, Replica]]:
    async with replica(redis.url) as a, replica(redis.url) as b:
        yield a, b


def entry(question: KeyedQuestion, answer: bytes = b"Paris", ttl_ms: int = 600_000) -> Entry:
    now_ms = time.time_ns() // 1_000_000
    return Entry(
        question.key, question.tenant, question.partition, question.asked.encode(), answer, now_ms + ttl_ms, now_ms
    )


def another() -> RedisEntries:
    """Another replica's, which does what a test wants of it."""
    return RedisEntries("bag of words", 0, lambda: time.time_ns() // 1_000_000)


async def together(client: Any, changes: Sequence[redis_entries.Put | Removal]) -> None:
    """Make changes whose news arrive together."""
    async with client.pipeline(transaction=True) as pipeline:
        for script, arguments in map(another()._script, changes):
            pipeline.eval(script, 0, 100, *arguments)
        await pipeline.execute()


async def test_an_entry_is_found_by_its_question_and_by_its_meaning_elsewhere(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    assert await a.keep(CAPITAL, b"Paris") is True
    await up_to_date(redis, a, b)
    exact, semantic = await b.look_up(CAPITAL), await b.look_up(REWORDED, 0.8)
    assert (exact.verdict, semantic.verdict) == (Verdict.EXACT, Verdict.SEMANTIC)
    assert not exact.local
    assert (await b.look_up(THEIRS, 0.5)).verdict is Verdict.MISS


async def test_a_replica_does_not_make_its_own_change_twice(redis: RedisProcess, pair: tuple[Replica, Replica]) -> None:
    a, b = pair
    with a.memory.watchers.watch() as here, b.memory.watchers.watch() as there:
        await a.keep(CAPITAL, b"Lyon")
        await a.keep(CAPITAL, b"Paris")
        await a.remove(CAPITAL)
        await a.keep(CAPITAL, b"Paris")
        await up_to_date(redis, a, b)
        for removals in (a, b):
            removals.memory.watchers.close()
        told = [Removal(key=CAPITAL.key)] * 2  # replaced, and removed
        assert [removal async for removal in here] == told
        assert [removal async for removal in there] == told
    assert a.holds() == b.holds() == await kept(redis) == {CAPITAL.key: b"Paris"}


async def test_what_is_replaced_is_told_to_those_who_hold_no_such_entry(redis: RedisProcess) -> None:
    async with replica(redis.url) as a, replica(redis.url, max_entries=1) as b:
        await a.keep(CAPITAL, b"Lyon")
        await a.keep(OTHER, b"a thing")
        await up_to_date(redis, a, b)
        assert list(b.holds()) == [OTHER.key]
        with b.memory.watchers.watch() as removals:
            await a.keep(CAPITAL, b"Paris")
            assert await anext(removals) == Removal(key=CAPITAL.key)


async def test_what_was_replaced_and_removed_before_it_is_heard_of_is_told_once_each(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Lyon")
        with one.memory.watchers.watch() as removals:
            async with redis.client() as client:
                epoch = await another().begin(client)
                changes = [redis_entries.Put(entry(CAPITAL), None, epoch), Removal(key=CAPITAL.key)]
                await together(client, changes)
            await up_to_date(redis, one)
            one.memory.watchers.close()
            assert [removal async for removal in removals] == [Removal(key=CAPITAL.key)] * 2
        assert one.holds() == {}


async def test_what_is_replaced_is_told_even_where_only_the_new_entry_was_ever_seen(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        with one.memory.watchers.watch() as removals:
            async with redis.client() as client:
                epoch = await another().begin(client)
                changes = [redis_entries.Put(entry(CAPITAL, answer), None, epoch) for answer in (b"Lyon", b"Paris")]
                await together(client, changes)
            assert await anext(removals) == Removal(key=CAPITAL.key)
        await up_to_date(redis, one)
        assert one.holds() == {CAPITAL.key: b"Paris"}


async def test_a_removal_anywhere_during_a_store_wins(redis: RedisProcess, pair: tuple[Replica, Replica]) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    for remove in (b.remove(CAPITAL), b.remove_tenant("acme")):
        known = a.store.sequence  # the store begins
        assert await remove == 1
        with pytest.raises(Conflict):
            await a.store.insert(entry(CAPITAL), None, known)
        assert await agreed(redis, a, b) == {}
        await a.keep(CAPITAL, b"Paris")  # what begins later is kept
        assert await agreed(redis, a, b) == {CAPITAL.key: b"Paris"}


async def test_an_answer_that_was_begun_before_a_removal_anywhere_is_not_stored_after_it(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    for remove in (lambda: b.remove(CAPITAL), lambda: b.remove_tenant("acme")):
        await up_to_date(redis, a, b)
        epoch = a.answers.epoch  # a lookup misses, and an answer is begun
        await remove()
        await up_to_date(redis, a, b)
        for each in (a, b):
            with pytest.raises(Conflict):
                await each.keep(CAPITAL, b"old", epoch=epoch)
            await each.keep(THEIRS, b"kept", epoch=epoch)
        await up_to_date(redis, a, b)
        assert CAPITAL.key not in a.holds() | b.holds() | await kept(redis)
    async with replica(redis.url) as restarted:  # which heard of none of it
        with pytest.raises(Conflict):
            await restarted.keep(CAPITAL, b"old", epoch=epoch)
        await restarted.keep(CAPITAL, b"new", epoch=restarted.answers.epoch)


async def test_without_redis_nothing_is_stored_and_nothing_is_removed(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(redis, a, b)
    embedded = a.answers.embedder.misses
    await redis.kill()
    await until(lambda: _away(a))
    assert await a.keep(OTHER, b"a thing") is False
    assert a.answers.embedder.misses == embedded, "what is not kept need not be embedded"
    for remove in (a.remove(CAPITAL), a.remove_tenant("acme"), a.remove(OTHER)):
        with pytest.raises(NotRemoved) as refused:
            await remove
        assert refused.value.retry_delay_s
    for one in pair:
        await until(lambda one=one: _away(one))
        found = await one.look_up(CAPITAL)
        assert (found.verdict, found.local) == (Verdict.EXACT, True)
    assert (a.memory.stats.stores, a.memory.stats.skipped) == (1, 1)
    await redis.start()
    assert await agreed(redis, a, b) == {CAPITAL.key: b"Paris"}
    assert await a.remove(CAPITAL) == 1
    assert await agreed(redis, a, b) == {}


async def test_what_others_removed_while_a_replica_was_cut_off_is_local_until_it_is_back_and_then_gone(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await a.keep(OTHER, b"a thing")
    await up_to_date(redis, a, b)
    a.state.lose("the test says so")
    assert await b.remove(CAPITAL) == 1
    while (found := await a.look_up(CAPITAL)).local:
        assert found.verdict in (Verdict.EXACT, Verdict.MISS)
        await asyncio.sleep(0)
    assert found.verdict is Verdict.MISS
    assert a.memory.stats.snapshots == 1, "the stream goes on from where it was"
    assert a.holds() == b.holds() == await kept(redis) == {OTHER.key: b"a thing"}


async def test_what_is_removed_while_a_snapshot_is_loaded_is_not_served_after_it(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await a.keep(OTHER, b"a thing")
    await up_to_date(redis, a, b)
    load = snapshot.load

    async def slowly(*arguments: Any) -> snapshot.Snapshot:
        loaded = await load(*arguments)
        await b.remove(CAPITAL)
        return loaded

    async with redis.client() as client:
        with patch.object(snapshot, "load", slowly):
            a.state.lose("the test says so")
            await client.xtrim(CHANGES, maxlen=0, approximate=False)
            a.store._follower.sequence = 1  # far behind
            while (found := await a.look_up(CAPITAL)).local:
                await asyncio.sleep(0)
    assert found.verdict is Verdict.MISS
    assert a.memory.stats.snapshots == 2


async def test_an_answer_that_was_begun_before_a_removal_is_not_stored_when_redis_is_back_either(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    await up_to_date(redis, a, b)
    epoch = a.answers.epoch
    await b.remove_tenant("acme")
    await redis.kill()
    await until(lambda: _away(a))
    assert await a.keep(CAPITAL, b"old", epoch=epoch) is False
    await redis.start()
    await up_to_date(redis, a, b)
    with pytest.raises(Conflict):
        await a.keep(CAPITAL, b"old", epoch=epoch)
    assert await a.keep(THEIRS, b"kept", epoch=epoch)
    assert await agreed(redis, a, b) == {THEIRS.key: b"kept"}


async def test_a_removal_and_a_store_that_were_both_under_way_when_redis_was_lost_are_neither_of_them_done(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(redis, a, b)
    epoch = a.answers.epoch
    redis.stop()
    removing = asyncio.create_task(a.remove(CAPITAL))
    await asyncio.sleep(0)
    storing = asyncio.create_task(a.keep(CAPITAL, b"old", epoch=epoch))
    await until(lambda: a.store._writes._workers)
    a.state.lose("the test says so")
    redis.cont()
    with pytest.raises(NotRemoved):
        await removing
    assert await storing is False
    await agreed(redis, a, b)
    assert set(a.holds().values()) <= {b"Paris"}, "Redis may have heard of the removal; the store came after it"


async def test_an_answer_that_was_begun_before_redis_was_emptied_is_not_stored(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    epoch = a.answers.epoch
    await b.remove_tenant("acme")
    async with redis.client() as client:
        await client.flushall()
    for one in pair:  # whether or not it has noticed
        with pytest.raises(Conflict):
            await one.store.insert(entry(CAPITAL), None, epoch)
    await until(lambda: _loaded(a, 2))
    await up_to_date(redis, a, b)
    for one in pair:
        with pytest.raises(Conflict):
            await one.keep(CAPITAL, b"old", epoch=epoch)
    assert await a.keep(CAPITAL, b"new", epoch=a.answers.epoch)


async def test_a_store_that_knows_less_than_is_remembered_of_removals_is_overtaken(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    known = a.store.sequence
    with patch("services.cache.redis_entries._MAX_TOMBSTONES", 1):
        await b.remove(OTHER)
        await b.remove(REWORDED)  # the tombstone of the first is given up
    with pytest.raises(Conflict):
        await a.store.insert(entry(CAPITAL), None, known)
    await up_to_date(redis, a, b)
    assert await a.keep(CAPITAL, b"Paris") is True


async def test_an_entry_that_has_ended_when_it_is_heard_of_leaves_nothing(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(redis, a, b)
    async with redis.client() as client:
        known = await redis_entries.last_sequence(client)
        ended = redis_entries.Put(entry(CAPITAL, b"Lyon", ttl_ms=-1_000), None, known)
        assert [each.conflict for each in await another().write(client, [ended])] == [False]
        assert not await client.exists(ENTRY + CAPITAL.key)
    await up_to_date(redis, a, b)
    assert a.holds() == b.holds() == {}
    assert (await b.look_up(REWORDED, 0.8)).verdict is Verdict.MISS


@pytest.mark.parametrize("where", ["at its end", "before its end"])
async def test_a_gap_in_the_stream_forces_a_snapshot(
    redis: RedisProcess, pair: tuple[Replica, Replica], where: str
) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    await up_to_date(redis, a, b)
    async with redis.client() as client:
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
        await up_to_date(redis, small, large)
        await large.remove(CAPITAL)
        assert (await small.look_up(CAPITAL)).verdict is Verdict.MISS


async def test_a_replica_starts_with_what_was_used_last(redis: RedisProcess) -> None:
    questions = [identity(f"what is {number}") for number in range(3)]
    async with replica(redis.url) as before:
        for question in questions:
            await before.keep(question, b"x")
        await asyncio.sleep(0.002)  # uses are told apart by the millisecond
        await before.look_up(questions[0])
        before.answers.sweep()

        async def used_last() -> bool:
            async with redis.client() as client:
                return (await redis_entries.recent(client, "acme", 0, 1)) == [questions[0].key]

        await until(used_last)
    async with replica(redis.url, max_entries=1) as after:
        assert list(after.holds()) == [questions[0].key]
        assert (await after.look_up(questions[1])).verdict is Verdict.EXACT


async def test_a_flood_of_one_tenant_leaves_what_another_has_in_redis_and_in_memory(redis: RedisProcess) -> None:
    theirs = [identity(f"what is {number}", tenant="globex") for number in range(20)]
    async with redis.client() as client:
        await client.config_set("maxmemory", "12mb")
        await client.config_set("maxmemory-policy", "volatile-lru")
    async with replica(redis.url) as one:
        for question in theirs:
            await one.keep(question, b"x" * 1_000)
        for first in range(0, 2_000, 50):
            flood = (identity(f"why is {number}") for number in range(first, first + 50))
            await asyncio.gather(*(one.keep(question, b"x" * 10_000) for question in flood))
        left = await kept(redis)
        assert {question.key for question in theirs} <= left.keys()
        assert 20 < len(left) < 1_000
    async with redis.client() as client:
        assert (await client.info("stats"))["evicted_keys"] == 0  # Redis' own eviction knows no tenants
        sizes = [int(size) for tenant in ("acme", "globex") for size in await client.hvals(SIZES + tenant)]
        assert int(await client.get(BYTES)) == sum(sizes) <= 12 * 2**20 * 0.8
    async with replica(redis.url, max_entries=40) as restarted:
        assert {question.key for question in theirs} <= restarted.holds().keys()
        assert len(restarted.holds()) == 40
        assert restarted.memory.overflowed


async def test_what_is_removed_from_redis_counts_no_more(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        for question in (CAPITAL, OTHER, REWORDED, THEIRS, THEIRS):
            await one.keep(question, b"x" * 1_000)
        await one.remove(CAPITAL)
        await one.remove_tenant("globex")
        async with redis.client() as client:
            held = await client.zrange(HELD, 0, -1, withscores=True)
            assert held == [(b"acme", float(await client.get(BYTES)))]
            await one.remove_tenant("acme")
            assert int(await client.get(BYTES)) == 0
            assert not await client.exists(HELD, SIZES + "acme", SIZES + "globex", USED + "acme", USED + "globex")


async def test_embeddings_of_another_engine_are_not_compared(redis: RedisProcess) -> None:
    with patch("tests.unit.cache.conftest.BagOfWords.name", "another"):
        async with replica(redis.url) as other:
            await other.keep(CAPITAL, b"Paris")
    async with replica(redis.url) as ours:
        assert (await ours.look_up(REWORDED, 0.8)).verdict is Verdict.MISS
        assert (await ours.look_up(CAPITAL)).verdict is Verdict.EXACT


async def test_an_answer_whose_time_is_over_stands_in_on_every_replica_and_ends_in_redis_by_itself(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris", ttl_ms=1)
    await up_to_date(redis, a, b)

    async def stale() -> bool:
        return (await b.look_up(CAPITAL)).stale is not None

    await until(stale)
    async with redis.client() as client:
        assert 0 < await client.pttl(ENTRY + CAPITAL.key) <= 60_001


async def test_what_found_an_ended_entry_goes_too(redis: RedisProcess) -> None:
    async with redis.client() as client:
        ended = redis_entries.Put(entry(CAPITAL, ttl_ms=-1_000), None, await another().begin(client))
        assert [each.conflict for each in await another().write(client, [ended])] == [False]
        assert await client.zcard(USED + "acme") == 1
        await another().touch(client, [])
        assert await client.exists(USED + "acme", TENANT + "acme", SIZES + "acme", HELD) == 0
        assert int(await client.get(BYTES)) == 0


async def test_watches_end_with_redis_and_are_in_force_again_when_it_is_back(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        await one.memory.watchers.in_force()
        with one.memory.watchers.watch() as removals:
            await redis.kill()
            assert [removal async for removal in removals] == []
        again = asyncio.create_task(one.memory.watchers.in_force())
        await redis.start()
        await again


async def test_a_redis_that_began_anew_is_taken_as_it_is(redis: RedisProcess, pair: tuple[Replica, Replica]) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(redis, a, b)
    async with redis.client() as client:
        await client.flushall()
    await until(lambda: _empty(a))
    await until(lambda: _empty(b))
    await up_to_date(redis, a, b)
    await b.keep(OTHER, b"a thing")
    assert await agreed(redis, a, b) == {OTHER.key: b"a thing"}


async def test_a_damaged_entry_is_passed_over(redis: RedisProcess) -> None:
    async with replica(redis.url) as before:
        await before.keep(CAPITAL, b"Paris")
        await before.keep(OTHER, b"a thing")
    async with redis.client() as client:
        await client.hset(ENTRY + CAPITAL.key, "expires_at_ms", "soon")
    async with replica(redis.url) as after:
        assert list(after.holds()) == [OTHER.key]


async def test_changes_that_nobody_understands_are_passed_over_by_a_snapshot(
    redis: RedisProcess, pair: tuple[Replica, Replica]
) -> None:
    a, b = pair
    await a.keep(CAPITAL, b"Paris")
    await up_to_date(redis, a, b)
    async with redis.client() as client:
        last = await redis_entries.last_sequence(client)
        await client.xadd(CHANGES, {"op": "rename"}, id=f"{last + 1}-0")  # as a later version might
        await client.set(SEQUENCE, last + 1)
    await until(lambda: _loaded(a, 2))
    await b.keep(OTHER, b"a thing")
    await agreed(redis, a, b)


async def test_replicas_of_the_first_version_can_read_the_stream(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Paris")
        await one.remove(CAPITAL)
    async with redis.client() as client:
        changes = [fields for _, fields in await client.xrange(CHANGES)]
    names = {b"before", b"op", b"what", b"tenant", b"entries", b"origin", b"number"}
    assert [fields.keys() for fields in changes] == [names, names]
    assert [int(fields[b"number"]) for fields in changes] == [0, 0]  # nobody's


async def test_vectors_come_back_as_they_were(redis: RedisProcess) -> None:
    vector = np.linspace(0, 1, DIMENSION, dtype=np.float32)
    async with redis.client() as client:
        await another().write(client, [redis_entries.Put(entry(CAPITAL), vector, await another().begin(client))])
        stored = await another().read(client, [CAPITAL.key, OTHER.key])
    assert stored[0]
    assert stored[0][1] is not None
    assert (stored[0][1] == vector).all()
    assert stored[1] is None


@pytest.mark.parametrize("seed", range(3))
async def test_replicas_end_alike_and_nothing_removed_returns_whatever_happens_at_once(
    redis: RedisProcess, seed: int
) -> None:
    chance = random.Random(seed)
    questions = [identity(f"what is {number}", tenant=tenant) for number in range(4) for tenant in ("acme", "globex")]
    began: dict[bytes, float] = {}
    removals: list[tuple[float, KeyedQuestion, bool]] = []

    async def change(answer: bytes, replicas: list[Replica]) -> None:
        await asyncio.sleep(chance.random() * 1.5)
        one, question, now = chance.choice(replicas), chance.choice(questions), asyncio.get_running_loop().time()
        what = chance.choices(("store", "remove", "remove tenant"), (85, 13, 2))[0]
        if what == "store":
            began[answer] = now
            with suppress(Conflict):
                await one.keep(question, answer)
            return
        by_tenant = what == "remove tenant"
        with suppress(NotRemoved):  # then it may be done or not
            await (one.remove_tenant(question.tenant) if by_tenant else one.remove(question))
            removals.append((now, question, by_tenant))

    async def disturb(replicas: list[Replica]) -> None:
        for _ in range(6):
            await asyncio.sleep(chance.random() * 0.4)
            if chance.random() < 0.6:
                chance.choice(replicas).state.lose("the test says so")
            else:
                await redis.restart()

    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(replica(redis.url)) for _ in range(3)]
        async with asyncio.TaskGroup() as tasks:
            for number in range(500):
                tasks.create_task(change(b"%d" % number, replicas))
            tasks.create_task(disturb(replicas))
        await up_to_date(redis, *replicas)
        left = await kept(redis)
        assert [each.holds() for each in replicas] == [left] * 3
    tenants = {question.key: question.tenant for question in questions}
    for at, question, by_tenant in removals:
        about = {key for key in left if key == question.key or (by_tenant and tenants[key] == question.tenant)}
        assert not {key for key in about if began[left[key]] < at}


async def _away(one: Replica) -> bool:
    return one.store.local


async def _empty(one: Replica) -> bool:
    return not one.holds()


async def _loaded(one: Replica, times: int) -> bool:
    return one.memory.stats.snapshots >= times and one.state.up
