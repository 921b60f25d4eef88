"""Reads Redis' entries at a sequence number: all of them, or the most recently used ones where memory is too small.

Other processes change entries during the read. Where memory may hold all, the keys are listed first, so that none is
missing. Otherwise entries are read by rank, which may miss some: that snapshot is incomplete anyway.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from redis.asyncio import Redis

from services.cache import redis_entries
from services.cache.memory import Memory
from services.cache.redis_entries import RedisEntries, Stored

T = TypeVar("T")
Ask = Callable[[Callable[[Redis], Awaitable[T]]], Awaitable[T]]
READ = 32  # entries in one reply: of the largest size, 16 MiB
_COUNTED = 500  # tenants in one call, which has little time


@dataclass(slots=True)
class Snapshot:
    """Entries by key, each tenant's most recently used first. A change after `sequence` may or may not be in it: a
    follower that applies the changes from there has the same entries in the end. `held`: keys that memory had already,
    whose entries are here without their vectors."""

    sequence: int
    entries: dict[str, Stored] = field(default_factory=dict)
    complete: bool = True
    held: set[str] = field(default_factory=set)


async def load(ask: Ask[Any], redis: RedisEntries, memory: Memory) -> Snapshot:
    """Load entries until memory is full. The tenant with the smallest share so far is read next, so that every tenant
    gets its fair share, or all of its entries (progressive filling: Bertsekas and Gallager, Data Networks, 1992,
    section 6.5.2)."""
    snapshot = Snapshot(await ask(redis.begin))
    room, most = memory.entries.max_bytes, memory.entries.max_entries
    there = await _counts(ask)
    all_keys = {tenant: await _keys(ask, tenant) for tenant in there} if sum(there.values()) <= most else None
    filling = sorted((0.0, tenant, 0) for tenant in there)  # a heap: share so far, tenant, keys so far
    while filling and room > 0 and len(snapshot.entries) < most:
        share, tenant, start = heapq.heappop(filling)
        count = min(READ, max(1, (most - len(snapshot.entries)) // (len(filling) + 1)))
        if all_keys is None:
            keys = await ask(partial(redis_entries.recent, tenant=tenant, start=start, count=count))
        else:
            keys, there[tenant] = all_keys[tenant][start : start + count], len(all_keys[tenant])
        found = [each for each in await ask(partial(redis.read, keys=keys)) if each]
        snapshot.entries |= {each[0].key: _known(memory, each, snapshot.held) for each in found}
        taken = sum(entry.size for entry, _ in found)
        room -= taken
        if start + len(keys) < there[tenant] and keys:
            share += max(len(keys) / most, taken / memory.entries.max_bytes)
            heapq.heappush(filling, (share, tenant, start + len(keys)))
    snapshot.complete = all_keys is not None and not filling
    return snapshot


async def _counts(ask: Ask[Any]) -> dict[str, int]:
    """How many keys each tenant has."""
    found = dict[str, int]()
    for some in parts(await ask(redis_entries.tenants), _COUNTED):
        found |= zip(some, await ask(partial(redis_entries.counts, tenants=some)), strict=True)
    return found


def parts(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """The items in their order, `count` at a time."""
    return (items[start : start + count] for start in range(0, len(items), count))


async def _keys(ask: Ask[Any], tenant: str) -> list[str]:
    """All keys of a tenant, the most recently used first."""
    cursor, found = 0, dict[str, float]()
    while True:
        cursor, some = await ask(partial(redis_entries.by_use, tenant=tenant, cursor=cursor))
        found |= {key: used for used, key in some}
        if not cursor:
            return sorted(found, key=found.__getitem__, reverse=True)


def _known(memory: Memory, stored: Stored, known: set[str]) -> Stored:
    """The entry in memory that equals `stored`, else `stored`, so that none is held twice."""
    held = memory.same(stored[0])
    if held is None:
        return stored
    known.add(held.key)
    return held, None
