"""Replicas whose clocks differ, or jump: Redis' own clock decides what has ended."""

from __future__ import annotations

from typing import Any

import pytest

from services.cache.answers import Verdict
from services.cache.errors import Conflict
from services.cache.redis_entries import Put, RedisEntries
from services.cache.redis_scripts import ENTRY, USED
from services.cache.tombstones import Removal
from tests.integration.cache_replicas.replicas import CAPITAL, OTHER, entry, now_ms, replica
from tests.redis import RedisProcess
from tests.waiting import until

_HOUR_MS = 3_600_000


def replica_ahead_by(ms: int) -> RedisEntries:
    return RedisEntries("engine", 0, lambda: now_ms() + ms)


@pytest.mark.parametrize("change", ["sweep", "put"])
async def test_a_replica_with_a_fast_clock_hides_no_entry_from_a_removal(client: Any, change: str) -> None:
    right, ahead = replica_ahead_by(0), replica_ahead_by(2 * _HOUR_MS)
    await right.write(client, [Put(entry(CAPITAL, ttl_ms=_HOUR_MS), None, await right.begin(client))])
    if change == "sweep":
        await ahead.touch(client, [])
    else:
        await ahead.write(client, [Put(entry(OTHER, ttl_ms=_HOUR_MS), None, await ahead.begin(client))])
    assert await client.zscore(USED + CAPITAL.tenant, CAPITAL.key)
    [removed] = await right.write(client, [Removal(tenant=CAPITAL.tenant)])
    assert removed.entries == (1 if change == "sweep" else 2)
    assert not await client.exists(ENTRY + CAPITAL.key)


async def test_entries_lost_to_a_clock_jump_are_found_in_redis_when_the_clock_is_right(
    redis: RedisProcess,
) -> None:
    jumped_ms = 0
    async with replica(redis.url, ahead_ms=lambda: jumped_ms) as one:
        await one.keep(CAPITAL, b"Paris", ttl_ms=_HOUR_MS)
        jumped_ms = 2 * _HOUR_MS
        one.answers.sweep()
        assert one.holds() == {}
        jumped_ms = 0
        await until(lambda: one.memory.overflowed)
        found = await one.look_up(CAPITAL)
        assert (found.verdict, found.entry and found.entry.answer) == (Verdict.EXACT, b"Paris")


async def test_an_answer_that_began_with_a_redis_whose_clock_was_ahead_is_not_stored(redis: RedisProcess) -> None:
    async with replica(redis.url) as one:
        with pytest.raises(Conflict):
            await one.keep(CAPITAL, b"Paris", epoch=one.answers.epoch + _HOUR_MS * 1_000)
        assert await one.keep(CAPITAL, b"Paris", epoch=one.answers.epoch)


async def test_an_entry_that_ends_soon_or_has_ended_is_not_missed(client: Any) -> None:
    right = replica_ahead_by(0)
    epoch = await right.begin(client)
    await right.write(
        client, [Put(entry(CAPITAL, ttl_ms=50_000), None, epoch), Put(entry(OTHER, ttl_ms=_HOUR_MS), None, epoch)]
    )
    assert not await right.outlives(client, [CAPITAL.key, "0" * 64])
    assert await right.outlives(client, [CAPITAL.key, OTHER.key])


async def test_an_answer_that_is_stored_again_when_its_time_is_over_is_there(client: Any) -> None:
    entries = replica_ahead_by(0)
    epoch = await entries.begin(client)
    await entries.write(client, [Put(entry(CAPITAL, ttl_ms=-1), None, epoch)])
    await entries.write(client, [Put(entry(CAPITAL, ttl_ms=_HOUR_MS), None, epoch)])
    [there] = await entries.read(client, [CAPITAL.key])
    assert there
    assert there[0].answer == b"Paris"
