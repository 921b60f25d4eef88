"""Entries in a Redis that replicas share. Redis is the truth, and this process's memory a replica of it.

A change is made in Redis alone, and comes to memory with the stream of changes, as every other replica's does. While
Redis is down memory is served as it is, marked as local; nothing is stored, and nothing is removed: a removal that the
others may never hear of must not look done. When Redis is back memory is brought up to date before it counts again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from services.cache.config import CacheSettings
from services.cache.encryption import Encryption, keys
from services.cache.entries import Entry
from services.cache.errors import Conflict, NotRemoved, VerdictNotKept
from services.cache.follower import Follower
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.redis_entries import Put, RedisEntries, RefusedChange, Stored, Tighten, Written
from services.cache.redis_verified import RedisVerified
from services.cache.store import OpenStore, Store, Used
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from services.runtime.line_limit import LineLimit
from services.runtime.policy.batch import Batcher
from services.runtime.shared_state import SharedState, SharedStateLost, connected

if TYPE_CHECKING:
    from services.cache.vectors import Vector

_AT_ONCE = 32  # changes, or entries asked for, in one round trip
_ASKED = 500  # keys in one round trip
_log = logging.getLogger(__name__)
_Change = Put | Tighten | Removal


class RedisStore:
    """A `Store` on Redis. `now_ms` is Unix time in milliseconds."""

    def __init__(
        self,
        state: SharedState,
        memory: Memory,
        embedded_by: str,
        stale_ms: int,
        now_ms: Callable[[], int],
        encryption: Encryption | None = None,
    ):
        """Made before `state` is asked for anything, so that it is notified when Redis answers."""
        self._state, self._memory = state, memory
        self._redis = RedisEntries(embedded_by, stale_ms, now_ms, encryption=encryption or Encryption())
        self._writes: Batcher[_Change, Written | RefusedChange] = Batcher("write", self._write, _AT_ONCE, max_delay_s=0)
        self._fetches: Batcher[str, Stored | None] = Batcher("fetch", self._read, _AT_ONCE, max_delay_s=0)
        self._verified = RedisVerified(memory.thresholds)
        self._follower = Follower(state, memory, self._redis, self._verified)
        self._used: dict[str, Used] = {}
        self._ended: list[str] = []  # keys whose time is over by this process's clock; Redis was not asked yet
        self._swept, self._lines = asyncio.Event(), LineLimit()
        memory.watchers.pause()
        state.on_return(self._returned)
        state.on_loss(self._lost)

    @property
    def local(self) -> bool:
        return not self._state.up

    @property
    def sequence(self) -> int:
        return self._follower.sequence

    async def insert(self, entry: Entry, vector: Vector | None, epoch: int) -> bool:
        try:
            written = await self._change(Put(entry, vector, epoch))
        except SharedStateLost:
            return False
        if written.conflict:
            raise Conflict
        return True

    async def remove(self, removal: Removal) -> int:
        entries = 0
        try:
            if not removal.key:
                while (gone := await self._state.ask(partial(self._redis.thin, tenant=removal.tenant))) is not None:
                    entries += gone
            return entries + (await self._change(removal)).entries
        except SharedStateLost:
            raise NotRemoved from None

    async def tighten(self, key: str, tenant: str, least_score: float) -> bool:
        try:
            if not (await self._change(Tighten(key, tenant, least_score))).conflict:
                return True
            held = self._memory.entries.held(key)
            await self._change(Removal(key, tenant))  # Redis may have evicted it, and replicas go on to serve it
            return held is not None and held.tenant == tenant
        except SharedStateLost:
            raise VerdictNotKept from None

    async def fetch(self, question: KeyedQuestion, deadline: Deadline) -> None:
        if self.local or not self._memory.overflowed:
            return
        turn = self._follower.turn
        with self._memory.on_its_way(question) as arriving:
            stored = await self._fetched(question, deadline)
        if turn != self._follower.turn:
            raise SharedStateLost("Redis was lost meanwhile")
        if stored and not arriving.outdated:
            self._memory.stats.fetched += 1
            self._memory.learn(*stored, self._redis.now_ms())

    def sweep(self, used: Sequence[Used], gone: Sequence[Entry]) -> None:
        """Clean the lists of expired entries in steps; Redis removes the entries themselves."""
        for entry, times in used:
            _, before = self._used.get(entry.key, (entry, 0))
            self._used[entry.key] = entry, before + times
        self._ended += [entry.key for entry in gone]
        self._swept.set()

    async def load(self) -> None:
        await self._state.tried()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follower.run())
            tasks.create_task(self._keep_house())

    async def close(self) -> None:
        await self._writes.close()
        await self._fetches.close()

    async def _change(self, change: _Change) -> Written:
        """Make a change, and have memory make it."""
        turn = self._follower.turn
        tenant = change.entry.tenant if isinstance(change, Put) else change.tenant
        written = await self._writes.submit(change, tenant=tenant)
        if isinstance(written, RefusedChange):
            if (left_out := self._lines.take()) is not None:
                _log.warning("Redis refused a change, and %d before since the last line: %s", left_out, written.why)
            raise SharedStateLost("Redis refused the change")
        await self._follower.reached(written.sequence, turn)
        return written

    async def _write(self, changes: Sequence[_Change]) -> list[Written | RefusedChange]:
        return await self._state.ask(partial(self._redis.write, changes=changes))

    async def _fetched(self, question: KeyedQuestion, deadline: Deadline) -> Stored | None:
        half = Deadline.after(deadline.remaining() / 2)  # so that there is time to look for what means the same
        try:
            return await self._fetches.submit(question.key, half, question.tenant)
        except ServiceError as error:
            raise SharedStateLost(f"Redis: {error}") from None

    async def _read(self, keys: Sequence[str]) -> list[Stored | None]:
        return await self._state.ask(partial(self._redis.read, keys=keys))

    async def _keep_house(self) -> None:
        while True:
            await self._swept.wait()
            self._swept.clear()
            used, self._used = self._used, {}
            with suppress(SharedStateLost):
                await self._state.ask(partial(self._redis.touch, used=used.values()))
                await self._verified.add(self._state.ask, self.sequence)
                await self._compare()

    async def _compare(self) -> None:
        """Whether Redis has what ended here: then this process's clock has jumped, and memory lacks something."""
        while self._ended and not self._memory.overflowed:
            keys = self._ended[:_ASKED]
            self._memory.overflowed = await self._state.ask(partial(self._redis.outlives, keys=keys))
            del self._ended[: len(keys)]
        self._ended.clear()

    async def _returned(self) -> None:
        """Redis answers (again). Raises `SharedStateLost` when it goes meanwhile."""
        await self._follower.catch_up()
        self._memory.watchers.resume()

    def _lost(self) -> None:
        self._memory.watchers.pause()
        self._follower.lost()


@asynccontextmanager
async def open_store(
    settings: CacheSettings, memory: Memory, embedded_by: str, now_ms: Callable[[], int]
) -> AsyncIterator[Store]:
    """The Redis of `redis_url`, which may be away."""
    if settings.database:
        _log.warning("database %s is not used: redis_url is set, and Redis keeps the entries", settings.database)
    async with connected(settings.redis_url, settings.redis_timeout_ms / 1000) as state:
        encryption = Encryption(keys(settings.encryption_key.get_secret_value()))
        yield RedisStore(state, memory, embedded_by, settings.stale_ms, now_ms, encryption)


_: OpenStore = open_store
