"""Answers whose time is over, on replicas that share a real Redis: given on request while another is made."""

from __future__ import annotations

import asyncio

from services.cache.answers import Verdict
from services.runtime.deadline import Deadline
from tests.integration.cache_replicas.replicas import Pair, Replica, replica, up_to_date
from tests.redis import RedisProcess
from tests.unit.cache.conftest import identity

_WITHIN_MS = 30_000  # less than an entry is kept after its time
_QUESTION = identity("what is the capital of france")


async def _found(cache: Replica, within_ms: int = _WITHIN_MS) -> tuple[Verdict, bytes, bool]:
    """The verdict, the answer, and whether its time is over."""
    found = await cache.answers.lookup(_QUESTION, 1, Deadline.never(), within_ms)
    return found.verdict, found.entry.answer if found.entry else b"", found.expired_ms > 0


async def _expired(cache: Replica) -> None:
    """Keep an answer, and return when its time is over."""
    await cache.keep(_QUESTION, b"Paris.", ttl_ms=50)
    await asyncio.sleep(0.06)


async def test_an_expired_answer_is_served_by_another_replica_until_there_is_a_new_one(pair: Pair):
    a, b = pair
    await _expired(a)
    await up_to_date(a, b)
    assert await _found(b) == (Verdict.EXACT, b"Paris.", True)
    for within_ms in (0, 1):
        assert await _found(b, within_ms) == (Verdict.MISS, b"", False)
    await b.keep(_QUESTION, b"Paris, still.")
    await up_to_date(a, b)
    assert await _found(a) == await _found(b) == (Verdict.EXACT, b"Paris, still.", False)


async def test_a_replica_that_begins_after_its_time_or_has_no_room_for_it_finds_it_in_redis(redis: RedisProcess):
    async with replica(redis.url) as a, replica(redis.url, max_entries=1) as small:
        await _expired(a)
        await small.keep(identity("something else"), b"Yes.")
        await up_to_date(a, small)
        assert _QUESTION.key not in small.holds()
        assert await _found(small) == (Verdict.EXACT, b"Paris.", True)
        async with replica(redis.url) as later:
            assert await _found(later) == (Verdict.EXACT, b"Paris.", True)


async def test_a_removed_answer_is_not_served_as_stale(pair: Pair):
    a, b = pair
    await _expired(a)
    await up_to_date(a, b)
    await b.remove(_QUESTION)
    await up_to_date(a, b)
    for each in pair:
        assert await _found(each) == (Verdict.MISS, b"", False)
