"""Snapshots that a replica loads of a shared Redis while others change it, and commands that Redis refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ResponseError

from services.cache import snapshot
from services.cache.follower import Follower
from services.cache.redis_entries import Put, RedisEntries, Stored
from services.cache.redis_scripts import ENTRY
from services.cache.redis_verified import RedisVerified
from services.cache.tombstones import Removal
from services.runtime.shared_state import is_refused
from tests.integration.cache_replicas.replicas import entry, now_ms, replica, up_to_date
from tests.redis import RedisProcess
from tests.unit.cache.conftest import BagOfWords, identity, memory

_MANY = 100  # three pages
QUESTIONS = [identity(f"question {number}") for number in range(_MANY)]


class Disturbed(RedisEntries):
    """Another replica does something when the first page was read."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def read(self, client: Any, keys: Sequence[str]) -> list[Stored | None]:
        found = await RedisEntries.read(self, client, keys)
        if self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return found


@pytest.mark.parametrize("what", ["removes", "uses"])
async def test_entries_that_others_remove_or_use_meanwhile_leave_no_gap_in_a_snapshot(client: Any, what: str) -> None:
    redis = Disturbed("engine", 0, now_ms)
    epoch = await redis.begin(client)
    entries = [entry(question, used_ms=number - 10_000) for number, question in enumerate(QUESTIONS)]
    await redis.write(client, [Put(each, None, epoch) for each in entries])
    least, most = entries[:8], entries[-8:]

    async def remove() -> None:
        await redis.write(client, [Removal(key=each.key) for each in most])

    async def use() -> None:
        for each in least:
            each.used_at_ms = now_ms()
        await redis.touch(client, [(each, 1) for each in least])

    redis.meanwhile = remove if what == "removes" else use
    held = memory()
    found = await snapshot.load(lambda call: call(client), redis, held)
    held.close()
    assert found.complete
    assert found.entries.keys() == {each.key for each in entries}  # the removed ones go with the news of it


class Directly:
    """In the place of the shared state: Redis answers."""

    def __init__(self, client: Any):
        self._client = client

    async def try_to(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call(self._client)


async def test_an_entry_that_leaves_memory_while_a_snapshot_is_loaded_does_not_come_back_without_its_vector(
    client: Any,
) -> None:
    redis, engine = RedisEntries("engine", 0, now_ms), BagOfWords()
    epoch, rows = await redis.begin(client), engine.embed_batch([question.asked for question in QUESTIONS])
    entries = [entry(question, used_ms=number - 10_000) for number, question in enumerate(QUESTIONS)]
    await redis.write(client, [Put(each, row, epoch) for each, row in zip(entries, rows, strict=True)])
    held = memory(max_bytes=90 * entries[0].size)  # of a hundred
    held.put(entries[-1], rows[-1])
    held.put(entries[-2], rows[-2])
    await Follower(Directly(client), held, redis, RedisVerified(held.thresholds))._load()  # type: ignore[arg-type]
    for number in (-1, -2):
        vector = rows[number]
        assert vector is not None
        found = await held.nearest(QUESTIONS[number], vector, _MANY)
        assert (entries[number].key in dict(found)) == bool(held.entries.held(entries[number].key))
    held.close()


async def test_a_refused_change_and_a_key_of_another_type_affect_no_other_entry(
    redis: RedisProcess, client: Any
) -> None:
    foreign, ours = QUESTIONS[:2]
    async with replica(redis.url) as one:
        await client.set(ENTRY + foreign.key, "not an entry")
        kept = await asyncio.gather(*(one.keep(each, b"yes") for each in (QUESTIONS[2], foreign, ours)))
        assert kept == [True, False, True]
        assert not await one.keep(foreign, b"again")
        assert one.state.up
        await up_to_date(one)
        assert one.holds().keys() == {ours.key, QUESTIONS[2].key}


@pytest.mark.parametrize(
    "reply", ["OOM command not allowed", "ERR Error running script: -OOM command", "MISCONF Errors writing to the AOF"]
)
def test_a_redis_without_room_or_disk_refuses_a_change_alone(reply: str) -> None:
    assert is_refused(BaseParser.parse_error(reply))


@pytest.mark.parametrize("reply", [ResponseError("LOADING"), ResponseError("READONLY")])
async def test_an_error_of_redis_itself_is_raised(reply: ResponseError) -> None:
    with pytest.raises(ResponseError):
        is_refused(reply)


async def test_however_many_tenants_there_are_a_call_is_about_few(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "_COUNTED", 3)
    redis, questions = RedisEntries("engine", 0, now_ms), [identity("what", f"{number}") for number in range(7)]
    epoch, sizes = await redis.begin(client), list[int]()
    await redis.write(client, [Put(entry(each), None, epoch) for each in questions])

    async def ask(call: Any) -> Any:
        given = call.keywords.get("tenants", ()) if isinstance(call, partial) else ()
        sizes.extend([len(given)] if given else [])
        return await call(client)

    held = memory()
    found = await snapshot.load(ask, redis, held)
    held.close()
    assert sizes == [3, 3, 1]
    assert (found.complete, found.entries.keys()) == (True, {each.key for each in questions})
