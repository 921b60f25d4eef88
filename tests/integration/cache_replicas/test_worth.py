"""Where Redis has no room left, what is worth the least goes, of the tenant that holds most."""

from __future__ import annotations

from typing import Any

from services.cache.entries import Entry
from services.cache.redis_entries import Put, RedisEntries, last_sequence
from services.cache.redis_scripts import CLOCK, ENTRY, USED, WORTH
from services.cache.tombstones import Removal
from tests.integration.cache_replicas.replicas import now_ms, replica
from tests.redis import RedisProcess
from tests.unit.cache.conftest import identity
from tests.unit.cache.test_greedy_dual import answer
from tests.waiting import until

ROOM = 5  # entries


def entry(key: str, tokens: int, tenant: str = "acme", ttl_ms: int = 600_000) -> Entry:
    return Entry(key, tenant, b"", b"what", answer(tokens), now_ms() + ttl_ms, now_ms())


async def put(client: Any, *entries: Entry, room: int = ROOM) -> None:
    kept = RedisEntries("engine", 0, now_ms, max_bytes=room * 2_200)
    epoch = await RedisEntries("engine", 0, now_ms).begin(client)
    for each in entries:
        assert not (await kept.write(client, [Put(each, None, max(epoch, await last_sequence(client)))]))[0].conflict


async def use(client: Any, used: Entry, times: int) -> None:
    await RedisEntries("engine", 0, now_ms).touch(client, [(used, times)])


async def held(client: Any) -> set[str]:
    return {name.decode().removeprefix(ENTRY) async for name in client.scan_iter(f"{ENTRY}*")}


async def test_a_costly_answer_outlives_cheap_ones_and_a_newcomer_is_held(client: Any) -> None:
    await put(client, entry("dear", 2_000))
    for number in range(20):
        await put(client, entry(str(number), 5))
        assert {"dear", str(number)} <= await held(client)
    assert len(await held(client)) == ROOM


async def test_used_entries_stay_and_once_popular_ones_are_evicted(client: Any) -> None:
    popular = entry("popular", 20)
    await put(client, popular)
    await use(client, popular, 30)
    gone = None
    for number in range(400):
        await put(client, entry(str(number), 15))
        if popular.key not in await held(client):
            gone = number
            break
    assert gone is not None
    assert gone > 40
    assert float(await client.hget(CLOCK, "acme")) > 0


async def test_a_flood_of_costly_answers_takes_nothing_of_a_tenant_with_cheap_ones(client: Any) -> None:
    theirs = [entry(f"theirs {number}", 1, tenant="globex") for number in range(2)]
    await put(client, *theirs)
    await put(client, *(entry(str(number), 2_000) for number in range(30)))
    assert {each.key for each in theirs} <= await held(client)


async def test_entries_that_have_ended_make_room_before_any_other(client: Any) -> None:
    await put(client, entry("kept", 5), *(entry(f"ended {number}", 2_000, ttl_ms=50) for number in range(ROOM - 1)))

    async def have_ended() -> bool:
        return await held(client) == {"kept"}

    await until(have_ended)
    await put(client, entry("theirs", 5, tenant="globex"))
    assert await held(client) == {"kept", "theirs"}


async def test_entries_of_the_first_version_are_evicted_too(client: Any) -> None:
    old = [entry(f"old {number}", 2_000) for number in range(ROOM)]
    await put(client, *old)
    await client.delete(WORTH + "acme")
    for each in old:
        await client.hdel(ENTRY + each.key, "worth", "uses")
    await put(client, *(entry(str(number), 5) for number in range(3)))
    assert len(await held(client)) == ROOM
    await use(client, old[-1], 3)


async def test_nothing_is_left_of_what_has_gone_and_a_use_brings_nothing_back(client: Any) -> None:
    kept = entry("a", 5)
    await put(client, kept, entry("b", 5))
    await RedisEntries("engine", 0, now_ms).write(client, [Removal(key="a")])
    await use(client, kept, 3)
    assert await held(client) == {"b"}
    assert await client.zrange(WORTH + "acme", 0, -1) == [b"b"]
    await put(client, *(entry(str(number), 5) for number in range(9)))
    await RedisEntries("engine", 0, now_ms).write(client, [Removal(tenant="acme")])
    assert await client.exists(WORTH + "acme", USED + "acme", CLOCK) == 0


async def test_uses_of_all_replicas_count_together_and_are_known_after_a_restart(
    redis: RedisProcess, client: Any
) -> None:
    question = identity("what is it")
    async with replica(redis.url) as one, replica(redis.url) as two:
        await one.keep(question, answer(10))
        for each, times in ((one, 3), (two, 4)):
            for _ in range(times):
                await each.look_up(question)
            each.answers.sweep()

        async def counted() -> bool:
            return int(await client.hget(ENTRY + question.key, "uses")) == 8

        await until(counted)
    async with replica(redis.url) as again:
        assert [each.uses for each in again.memory.entries] == [8]
