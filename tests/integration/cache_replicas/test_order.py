"""What replicas agree on, whatever happens at once: several in one process, on a real Redis."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any
from unittest.mock import patch

import pytest

from services.cache import redis_entries
from services.cache.errors import Conflict, NotRemoved
from services.cache.keyed_question import KeyedQuestion
from services.cache.tombstones import Removal
from tests.integration.cache_replicas.replicas import (
    CAPITAL,
    OTHER,
    REWORDED,
    THEIRS,
    Pair,
    Replica,
    another,
    entry,
    kept,
    replica,
    up_to_date,
)
from tests.redis import RedisProcess
from tests.unit.cache.conftest import identity


async def together(client: Any, changes: Sequence[redis_entries.Put | Removal]) -> None:
    """Make changes whose news arrive together."""
    async with client.pipeline(transaction=True) as pipeline:
        for script, arguments in map(another()._script, changes):
            pipeline.eval(script, 0, 100, *arguments)
        await pipeline.execute()


async def test_a_replica_does_not_make_its_own_change_twice(redis: RedisProcess, pair: Pair) -> None:
    a, b = pair
    with a.memory.watchers.watch() as here, b.memory.watchers.watch() as there:
        await a.keep(CAPITAL, b"Lyon")
        await a.keep(CAPITAL, b"Paris")
        await a.remove(CAPITAL)
        await a.keep(CAPITAL, b"Paris")
        await up_to_date(a, b)
        for removals in (a, b):
            removals.memory.watchers.close()
        expected = [Removal(key=CAPITAL.key)] * 2  # replaced, and removed
        assert [removal async for removal in here] == expected
        assert [removal async for removal in there] == expected
    assert a.holds() == b.holds() == await kept(redis) == {CAPITAL.key: b"Paris"}


async def test_watchers_get_the_removal_of_a_replaced_entry_that_their_replica_lacks(redis: RedisProcess) -> None:
    async with replica(redis.url) as a, replica(redis.url, max_entries=1) as b:
        await a.keep(CAPITAL, b"Lyon")
        await a.keep(OTHER, b"a thing")
        await up_to_date(a, b)
        assert list(b.holds()) == [OTHER.key]
        with b.memory.watchers.watch() as removals:
            await a.keep(CAPITAL, b"Paris")
            assert await anext(removals) == Removal(key=CAPITAL.key)


async def test_a_replacement_and_a_removal_read_together_are_each_reported_once(
    redis: RedisProcess, client: Any
) -> None:
    async with replica(redis.url) as one:
        await one.keep(CAPITAL, b"Lyon")
        with one.memory.watchers.watch() as removals:
            epoch = await another().begin(client)
            changes = [redis_entries.Put(entry(CAPITAL), None, epoch), Removal(key=CAPITAL.key)]
            await together(client, changes)
            await up_to_date(one)
            one.memory.watchers.close()
            assert [removal async for removal in removals] == [Removal(key=CAPITAL.key)] * 2
        assert one.holds() == {}


async def test_an_answer_that_was_begun_before_a_removal_anywhere_is_not_stored_after_it(
    redis: RedisProcess, pair: Pair
) -> None:
    a, b = pair
    await a.keep(OTHER, b"a thing")
    for remove in (lambda: b.remove(CAPITAL), lambda: b.remove_tenant("acme")):
        await up_to_date(a, b)
        epoch = a.answers.epoch  # a lookup misses, and an answer is begun
        await remove()
        await up_to_date(a, b)
        for each in (a, b):
            with pytest.raises(Conflict):
                await each.keep(CAPITAL, b"old", epoch=epoch)
            await each.keep(THEIRS, b"kept", epoch=epoch)
        await up_to_date(a, b)
        assert CAPITAL.key not in a.holds() | b.holds() | await kept(redis)
    async with replica(redis.url) as restarted:  # which received none of these changes
        with pytest.raises(Conflict):
            await restarted.keep(CAPITAL, b"old", epoch=epoch)
        await restarted.keep(CAPITAL, b"new", epoch=restarted.answers.epoch)


async def test_a_store_that_knows_less_than_is_remembered_of_removals_is_overtaken(pair: Pair) -> None:
    a, b = pair
    known = a.store.sequence
    with patch("services.cache.redis_entries._MAX_TOMBSTONES", 1):
        await b.remove(OTHER)
        await b.remove(REWORDED)  # the tombstone of the first is given up
    with pytest.raises(Conflict):
        await a.store.insert(entry(CAPITAL), None, known)
    await up_to_date(a, b)
    assert await a.keep(CAPITAL, b"Paris") is True


@pytest.mark.parametrize("seed", range(3))
async def test_replicas_converge_and_removed_entries_stay_removed_after_concurrent_changes(
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
        await up_to_date(*replicas)
        left = await kept(redis)
        assert [each.holds() for each in replicas] == [left] * 3
    tenants = {question.key: question.tenant for question in questions}
    for at, question, by_tenant in removals:
        about = {key for key in left if key == question.key or (by_tenant and tenants[key] == question.tenant)}
        assert not {key for key in about if began[left[key]] < at}
