"""The shared entries as Redis holds them, and the calls that read and change them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np
from redis.asyncio import Redis

from services.cache.changes import Change, Delete, DeleteTenant, Put, Removing
from services.cache.entries import Entry
from services.cache.redis_scripts import CHANGES, DELETE, DELETE_TENANT, ENTRY, POSITION, PRUNE, PUT, TENANTS, USED
from services.cache.vectors import Vector

T = TypeVar("T")
Ask = Callable[[Callable[[Redis], Awaitable[T]]], Awaitable[T]]
Stored = tuple[Entry, Vector | None]

_MAX_CHANGES = 10_000  # news kept for who is behind; who is further behind reads everything again
_MAX_MARKS = 100_000
_PRUNED = 10  # tenants at a time
_SHARE = 0.8  # of Redis' memory for the entries: the rest is for news, marks, and what else is there
_OVERHEAD_BYTES = 1_792  # of an entry in Redis: its hash, and what finds it
OPERATIONS = ("put", "delete", "delete_tenant")
_FIELDS = ("tenant", "partition", "asked", "answer", "expires_at_ms", "used_at_ms", "embedded_by", "embedding")


@dataclass(frozen=True, slots=True)
class News:
    """A change as others hear of it. `before`: the position of the change before it. `entries`: how many were there
    that it replaced or removed. `origin` and `number`: who made it, and which of theirs it was."""

    position: int
    before: int
    op: str
    what: str
    tenant: str
    entries: int
    origin: str
    number: int

    @property
    def removing(self) -> Removing | None:
        """The removal that it was."""
        if self.op == "delete":
            return Delete(self.what)
        return DeleteTenant(self.tenant) if self.op == "delete_tenant" else None


@dataclass(frozen=True, slots=True)
class Mark:
    """What a removal left behind: its position, and up to which position there was nothing to be known before it."""

    position: int
    before: int


@dataclass(slots=True)
class Writer:
    """Who writes. `stale_ms`: how long an entry is kept after its time. `now_ms`: Unix time in milliseconds.
    `max_bytes`: how large all entries may become; 0: Redis has no limit of its own."""

    origin: str
    embedded_by: str
    stale_ms: int
    now_ms: Callable[[], int]
    max_bytes: int = 0

    async def measure(self, client: Redis) -> None:
        """Learn how much room there is."""
        self.max_bytes = int(_SHARE * (await client.info("memory"))["maxmemory"])

    async def write(self, client: Redis, changes: Sequence[tuple[int, Change]]) -> list[bool | Mark]:
        """Make numbered changes in their order. Returns for each what came of it: for a put, whether it is kept."""
        pipeline: Any = client.pipeline(transaction=False)  # each is a whole of its own
        for number, change in changes:
            script, arguments = self._script(change)
            pipeline.eval(script, 0, self.origin, number, _MAX_CHANGES, *arguments)
        replies = await pipeline.execute()
        return [_outcome(change, reply) for (_, change), reply in zip(changes, replies, strict=True)]

    async def touch(self, client: Redis, used: Iterable[Entry]) -> None:
        """Write down when entries were last used, for Redis' own eviction too, which saw none of it; and take a little
        of what has ended away."""
        pipeline: Any = client.pipeline(transaction=False)
        scores: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for entry in used:
            scores[entry.tenant][entry.key] = entry.used_at_ms
        for tenant, keys in scores.items():
            pipeline.zadd(USED + tenant, keys, xx=True, gt=True)
            pipeline.touch(*(ENTRY + key for key in keys))
        pipeline.eval(PRUNE, 0, self.now_ms(), _PRUNED)
        await pipeline.execute()
        await self.measure(client)

    def _script(self, change: Change) -> tuple[str, tuple[object, ...]]:
        match change:
            case Put(entry, vector, known, forgiven):
                ends_ms = entry.expires_at_ms + self.stale_ms
                forgiving = "".join(f" {position} " for position in forgiven)
                times = (known, forgiving, ends_ms, entry.used_at_ms, self.now_ms())
                values = _values(entry, vector, self.embedded_by)
                sizes = (_size(values), self.max_bytes)
                fields = chain.from_iterable(zip(_FIELDS, values, strict=True))
                return PUT, (entry.key, entry.tenant, *times, *sizes, *fields)
            case Delete(key):
                return DELETE, (key, _MAX_MARKS)
            case DeleteTenant(tenant):
                return DELETE_TENANT, (tenant, _MAX_MARKS)

    async def read(self, client: Redis, keys: Sequence[str]) -> list[Stored | None]:
        """The entries of keys, None for each that is not there."""
        pipeline: Any = client.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(ENTRY + key, _FIELDS)
        rows = await pipeline.execute()
        return [_entry(key, row, self.embedded_by) for key, row in zip(keys, rows, strict=True)]


async def news(client: Redis, after: int, count: int, wait_ms: int | None) -> list[News]:
    """Up to `count` changes after a position, oldest first; waits up to `wait_ms` for the first, or not at all."""
    replies = await cast(Any, client).xread({CHANGES: f"{after}-0"}, count=count, block=wait_ms)
    return [_news(key, fields) for _, rows in replies for key, fields in rows]


async def position(client: Redis) -> int:
    """Of the last change; 0 where there was none."""
    return int(await client.get(POSITION) or 0)


async def process(client: Redis) -> str:
    """Which Redis this is: another one after each start."""
    return str((await client.info("server"))["run_id"])


async def tenants(client: Redis) -> dict[str, int]:
    """Those that have entries, and how many keys `recent` may tell of each."""
    names = [name.decode() for name in await cast(Any, client).smembers(TENANTS)]
    pipeline: Any = client.pipeline(transaction=False)
    for name in names:
        pipeline.zcard(USED + name)
    return dict(zip(names, await pipeline.execute(), strict=True))


async def recent(client: Redis, tenant: str, start: int, count: int) -> list[str]:
    """A tenant's keys by their last use, the most recent first; some may have ended."""
    return [key.decode() for key in await cast(Any, client).zrevrange(USED + tenant, start, start + count - 1)]


def _outcome(change: Change, reply: Any) -> bool | Mark:
    if isinstance(change, Put):
        return bool(reply)
    at, mark, floor = reply
    return Mark(int(at), max(int(float(mark)), int(float(floor))))


def _news(key: bytes, fields: dict[bytes, bytes]) -> News:
    position = int(key.partition(b"-")[0])
    try:
        before, entries, number = (int(fields[name]) for name in (b"before", b"entries", b"number"))
        op, what, tenant, origin = (fields[name].decode() for name in (b"op", b"what", b"tenant", b"origin"))
    except (KeyError, ValueError):  # not ours, or of another version
        return News(position, 0, "unreadable", "", "", 0, "", 0)
    return News(position, before, op, what, tenant, entries, origin, number)


def _size(values: tuple[object, ...]) -> int:
    return sum(len(value if isinstance(value, bytes) else str(value).encode()) for value in values) + _OVERHEAD_BYTES


def _values(entry: Entry, vector: Vector | None, embedded_by: str) -> tuple[object, ...]:
    embedding = b"" if vector is None else vector.astype("<f4").tobytes()
    times = (entry.expires_at_ms, entry.used_at_ms)
    return (entry.tenant, entry.partition, entry.asked, entry.answer, *times, embedded_by, embedding)


def _entry(key: str, row: list[bytes | None], embedded_by: str) -> Stored | None:
    """An entry, with its embedding if `embedded_by` made it."""
    if any(value is None for value in row):
        return None
    tenant, partition, asked, answer, expires, used, made_by, embedding = cast(list[bytes], row)
    try:
        asked.decode()
        entry = Entry(key, tenant.decode(), partition, asked, answer, int(expires), int(used))
        known = embedding and made_by.decode() == embedded_by
        return entry, np.frombuffer(embedding, "<f4") if known else None
    except ValueError:  # not ours, or damaged
        return None
