"""The shared entries as Redis holds them, and the calls that read and change them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from services.cache import greedy_dual
from services.cache.encryption import Encryption, UnreadableEntry
from services.cache.entries import Entry, packed, unpacked
from services.cache.redis_scripts import (
    BEGIN,
    BYTES,
    CHANGES,
    DELETE,
    DELETE_TENANT,
    ENTRY,
    PRUNE,
    PUT,
    SEQUENCE,
    TENANTS,
    THIN,
    TIGHTEN,
    USE,
    USED,
)
from services.cache.store import Used
from services.cache.tombstones import Removal
from services.runtime.shared_state import is_refused

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from services.cache.vectors import Vector

Stored = tuple[Entry, "Vector | None"]

_MAX_CHANGES = 10_000  # in the stream; a replica that is further behind loads a snapshot
_MAX_TOMBSTONES = 100_000
_PRUNED = 10  # tenants at a time
_THINNED = 1_000  # entries at a time
_STEP_BYTES = 1024 * 1024  # of entries that are decrypted in one step of the event loop: a millisecond
_USED = 3 * 500  # keys, times and counts sent to Redis at a time
# The entries' share of Redis' memory: so much at most, and less where stored responses fill Redis, down to the least.
_SHARE, _LEAST, _FULL = 0.8, 0.1, 0.95
_OVERHEAD_BYTES = 2_048  # of an entry in Redis: its hash, and what finds it
_SOON_MS = 60_000  # clocks differ a little: what ends in Redis so soon has ended
_OPERATIONS = ("put", "delete", "delete_tenant")
_FIELDS = ("tenant", "partition", "asked", "answer", "expires_at_ms", "used_at_ms", "embedded_by", "embedding")


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """An entry is to take the place of any of its key. `epoch`: see `Store.insert`."""

    entry: Entry
    vector: Vector | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Tighten:
    """An entry is to be a hit of what is merely alike from a score on. See `Store.tighten`."""

    key: str
    tenant: str
    least_score: float


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a change: its sequence number, and how many entries it put, tightened or removed."""

    sequence: int
    entries: int

    @property
    def conflict(self) -> bool:
        """Whether nothing was put, because what was to be put was removed since; or there was nothing to tighten."""
        return not self.sequence


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """Redis refused this change, and answers otherwise. `why`: in its words."""

    why: str


@dataclass(frozen=True, slots=True)
class StreamChange:
    """A change in the stream. `previous`: the sequence number of the change before it. `entries`: how many entries it
    replaced or removed."""

    sequence: int
    previous: int
    op: str
    key: str = ""
    tenant: str = ""
    entries: int = 0

    @property
    def known(self) -> bool:
        """Whether this version knows what it is."""
        return self.op in _OPERATIONS

    @property
    def removal(self) -> Removal | None:
        """The removal that it is."""
        return Removal(self.key, self.tenant) if self.op in ("delete", "delete_tenant") else None


@dataclass(slots=True)
class RedisEntries:
    """`stale_ms`: how long an entry is kept after its time. `now_ms`: Unix time in milliseconds. `max_bytes`: how large
    all entries may become; 0: Redis has no limit of its own."""

    embedded_by: str
    stale_ms: int
    now_ms: Callable[[], int]
    max_bytes: int = 0
    encryption: Encryption = field(default_factory=Encryption)

    async def begin(self, client: Redis) -> int:
        """Learn how much room there is, and return the last sequence number."""
        await self._measure(client)
        return _sequence(await cast(Any, client).eval(BEGIN, 0))

    async def write(self, client: Redis, changes: Sequence[Put | Tighten | Removal]) -> list[Written | RefusedChange]:
        """Make changes in this order."""
        pipeline: Any = client.pipeline(transaction=False)  # each is a whole of its own
        for change in changes:
            script, arguments = self._script(change)
            pipeline.eval(script, 0, _MAX_CHANGES, *arguments)
        replies = await pipeline.execute(raise_on_error=False)
        return [
            RefusedChange(str(reply)) if is_refused(reply) else Written(int(reply[0]), int(reply[1]))
            for reply in replies
        ]

    async def thin(self, client: Redis, tenant: str) -> int | None:
        """Evict some entries of a tenant that has too many for one removal. Returns how many; None where it has few, or
        Redis refuses."""
        pipeline: Any = client.pipeline(transaction=False)
        pipeline.eval(THIN, 0, tenant, _THINNED)
        (reply,) = await pipeline.execute(raise_on_error=False)
        return None if is_refused(reply) or reply < 0 else int(reply)

    async def touch(self, client: Redis, used: Iterable[Used]) -> None:
        """Write down how often and when entries were used, for Redis' own eviction too, which saw none of it; and take
        a little of what has ended away."""
        pipeline: Any = client.pipeline(transaction=False)
        uses: defaultdict[str, list[object]] = defaultdict(list)
        for entry, times in used:
            uses[entry.tenant] += entry.key, entry.used_at_ms, times
        for tenant, arguments in uses.items():
            for start in range(0, len(arguments), _USED):
                pipeline.eval(USE, 0, tenant, *arguments[start : start + _USED])
        pipeline.eval(PRUNE, 0, _PRUNED)
        for reply in await pipeline.execute(raise_on_error=False):
            is_refused(reply)
        await self._measure(client)

    async def outlives(self, client: Redis, keys: Sequence[str]) -> bool:
        """Whether Redis keeps any of the entries for a good while yet."""
        pipeline: Any = client.pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(ENTRY + key)
        return any(left_ms > _SOON_MS for left_ms in await pipeline.execute())

    async def read(self, client: Redis, keys: Sequence[str]) -> list[Stored | None]:
        """The entries of keys, None for each that is not there."""
        pipeline: Any = client.pipeline(transaction=False)
        for key in keys:
            pipeline.hmget(ENTRY + key, (*_FIELDS, "least_score", "uses"))
        rows = await pipeline.execute(raise_on_error=False)
        entries, step_bytes = list[Stored | None](), 0
        for key, reply in zip(keys, rows, strict=True):
            entries.append(entry := None if is_refused(reply) else self._entry(key, reply))
            step_bytes += entry[0].size if entry else 0
            if step_bytes > _STEP_BYTES:
                step_bytes = 0
                await asyncio.sleep(0)
        return entries

    async def _measure(self, client: Redis) -> None:
        """Learn how much room there is for the entries, beside what else is in Redis."""
        memory = await client.info("memory")
        if not (most := memory.get("maxmemory", 0)):  # not every compatible service names it
            self.max_bytes = 0
            return
        held = await client.get(BYTES) or b""
        others = memory["used_memory"] - (int(held) if held.isdigit() else 0)
        self.max_bytes = int(max(_LEAST * most, min(_SHARE * most, _FULL * most - others)))

    def _script(self, change: Put | Tighten | Removal) -> tuple[str, tuple[object, ...]]:
        if isinstance(change, Tighten):
            return TIGHTEN, (change.key, change.tenant, change.least_score)
        if isinstance(change, Put):
            entry = change.entry
            times = (change.epoch, entry.expires_at_ms + self.stale_ms, entry.used_at_ms)
            values = self._values(entry, change.vector)
            size = _size(values)
            worth = ("worth", greedy_dual.cost(entry.answer) / size)
            fields = chain.from_iterable((*zip(_FIELDS, values, strict=True), worth))
            return PUT, (entry.key, entry.tenant, *times, size, self.max_bytes, *fields)
        if change.key:
            return DELETE, (change.key, change.tenant, _MAX_TOMBSTONES)
        return DELETE_TENANT, (change.tenant, _MAX_TOMBSTONES)

    def _values(self, entry: Entry, vector: Vector | None) -> tuple[object, ...]:
        asked, answer, embedding = self.encryption.seal(entry, packed(vector))
        times = (entry.expires_at_ms, entry.used_at_ms)
        return (entry.tenant, entry.partition, asked, answer, *times, self.embedded_by, embedding)

    def _entry(self, key: str, row: list[bytes | None]) -> Stored | None:
        """An entry, with its embedding if `embedded_by` made it."""
        *fields, least_score, uses = row
        if any(value is None for value in fields):
            return None
        tenant, partition, asked, answer, expires, used, made_by, embedding = cast(list[bytes], fields)
        try:
            least = float(least_score or 0)
            entry = Entry(key, tenant.decode(), partition, asked, answer, int(expires), int(used), least_score=least)
            entry.uses = max(0, int(uses or 0) - 1)  # that it is held here is one
            entry, embedding = self.encryption.open(entry, embedding)
            entry.asked.decode()
            known = embedding and made_by.decode() == self.embedded_by
            return entry, unpacked(embedding) if known else None
        except (ValueError, UnreadableEntry):  # not ours, or damaged
            return None


async def changes_after(client: Redis, sequence: int, count: int, wait_ms: int | None) -> list[StreamChange]:
    """Up to `count` changes after one, oldest first; waits up to `wait_ms` for the first, or not at all."""
    replies = await cast(Any, client).xread({CHANGES: f"{sequence}-0"}, count=count, block=wait_ms)
    return [_change(key, fields) for _, rows in replies for key, fields in rows]


async def last_sequence(client: Redis) -> int:
    """The sequence number of the last change; 0 if Redis never had entries."""
    return _sequence(await client.get(SEQUENCE) or 0)


async def tenants(client: Redis) -> list[str]:
    """The tenants that have entries."""
    return [name.decode() for name in await cast(Any, client).smembers(TENANTS)]


async def counts(client: Redis, tenants: Sequence[str]) -> list[int]:
    """How many keys `recent` may return of each tenant."""
    pipeline: Any = client.pipeline(transaction=False)
    for name in tenants:
        pipeline.zcard(USED + name)
    return list(await pipeline.execute())


async def by_use(client: Redis, tenant: str, cursor: int) -> tuple[int, list[tuple[float, str]]]:
    """About 1,000 of a tenant's keys with their last use, and the next cursor; 0: that was all. A whole round
    returns every key that exists all the while, some of them twice, however other processes change the rest."""
    cursor, found = await cast(Any, client).zscan(USED + tenant, cursor, count=1_000)
    return cursor, [(used, key.decode()) for key, used in found]


async def recent(client: Redis, tenant: str, start: int, count: int) -> list[str]:
    """A tenant's keys by their last use, the most recent first; some may have ended. Two pages may have a key in common
    or leave one out, where others change something between them."""
    return [key.decode() for key in await cast(Any, client).zrevrange(USED + tenant, start, start + count - 1)]


def _change(key: bytes, fields: dict[bytes, bytes]) -> StreamChange:
    sequence = int(key.partition(b"-")[0])
    try:
        previous, entries = int(fields[b"before"]), int(fields[b"entries"])
        op, what, tenant = (fields[name].decode() for name in (b"op", b"what", b"tenant"))
    except (KeyError, ValueError):  # not ours, or of another version
        return StreamChange(sequence, 0, "unreadable")
    return StreamChange(sequence, previous, op, what, tenant, entries)


def _sequence(reply: Any) -> int:
    """The sequence number in a reply. Raises Redis' own error for any other value: Redis then counts as lost, and this
    process goes on."""
    from redis.exceptions import ResponseError

    try:
        return int(reply)
    except ValueError:
        raise ResponseError(f"{SEQUENCE} is no number") from None


def _size(values: tuple[object, ...]) -> int:
    return sum(len(value if isinstance(value, bytes) else str(value).encode()) for value in values) + _OVERHEAD_BYTES
