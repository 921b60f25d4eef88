"""Entries in a Redis that replicas share; in this process's memory alone while it is away.

While Redis is there a change is made in Redis alone, and comes to memory with the news of it, in the order in which
Redis made it. Only what is removed leaves memory at once: until the news of that is here, older news bring nothing
back. When Redis goes, what nobody knows the end of is done here and waits in the outbox, with all that comes after it.
When it returns, it is told what it has not heard of first, and only then is memory brought up to date.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from services.cache.changes import Change, Delete, DeleteTenant, Outbox, Put, Removing
from services.cache.entries import Entry
from services.cache.errors import NotKept, Overtaken
from services.cache.follower import Follower
from services.cache.identity import Identity
from services.cache.memory import Memory
from services.cache.redis_entries import Mark, News, Stored, Writer
from services.cache.store import Made
from services.cache.under_way import Sent, UnderWay
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from services.runtime.policy.batch import Batcher
from services.runtime.shared_state import SharedState, SharedStateLost

_AT_ONCE = 32  # changes, or entries asked for, in one round trip
_log = logging.getLogger(__name__)


class RedisStore:
    """A `Store` on Redis. At most `max_queued` changes of a kind wait for it. `now_ms` is Unix time in milliseconds."""

    def __init__(
        self,
        state: SharedState,
        memory: Memory,
        embedded_by: str,
        stale_ms: int,
        max_queued: int,
        now_ms: Callable[[], int],
    ):
        """Made before `state` is asked for anything, so that it hears when Redis is there."""
        self._state, self._memory = state, memory
        self._redis = Writer(secrets.token_hex(8), embedded_by, stale_ms, now_ms)
        self._outbox = Outbox(max_queued, memory.entries.max_bytes)
        self._follower = Follower(state, memory, self._redis, self)
        self._under_way, self._wake = UnderWay(), asyncio.Event()
        self._removed: dict[Removing, int] = {}  # by this process and told to Redis, before memory is up to date again
        self._doubts = self._settled = 0  # how often memory may lack what Redis holds, and how often that was mended
        self._used: set[str] = set()  # keys
        self._tidy = False
        self._fetches: Batcher[str, Stored | None] = Batcher("fetch", self._read, _AT_ONCE, max_delay_s=0)
        memory.watchers.pause()
        state.on_return(self._returned)
        state.on_loss(self._lost)

    @property
    def alone(self) -> bool:
        return not self._state.up

    @property
    def queued(self) -> int:
        return len(self._outbox)

    @property
    def known(self) -> int:
        return self._follower.position

    def overtaken(self, question: Identity, epoch: int) -> bool:
        """While Redis is there it says so itself, when it is told to put the entry."""
        return not self._state.up and self._overtaken(question.key, question.tenant, epoch)

    async def insert(self, entry: Entry, vector: Vector | None, known: int) -> Made:
        return await self._make(Put(entry, vector, known))

    async def delete(self, key: str) -> Made:
        return await self._make(Delete(key), 1 if self._memory.remove(key) else 0)

    async def delete_tenant(self, tenant: str) -> Made:
        return await self._make(DeleteTenant(tenant), len(self._memory.remove_tenant(tenant)))

    async def fetch(self, question: Identity, deadline: Deadline) -> None:
        if not (self._memory.overflowed and self._state.up):
            return
        turn = self._follower.turn
        with self._memory.on_its_way(question) as arriving:
            stored = await self._fetched(question.key, deadline)
        if turn != self._follower.turn:
            raise SharedStateLost("Redis was lost meanwhile")
        if stored is None or arriving.overtaken or arriving.changed or self._removes(question.key, question.tenant):
            return
        self._memory.stats.fetched += 1
        self._memory.learn(*stored, self._redis.now_ms())

    def touch(self, entries: list[Entry]) -> None:
        self._used.update(entry.key for entry in entries)
        if len(self._used) > self._memory.entries.max_entries:  # Redis is away for long
            self._used = {key for key in self._used if self._memory.entries.held(key)}
        self.expired([])

    def expired(self, entries: list[Entry]) -> None:
        self._tidy = True  # in Redis they end by themselves; what found them goes bit by bit
        self._wake.set()

    async def load(self) -> None:
        await self._state.tried()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follower.run())
            tasks.create_task(self._write())

    async def close(self) -> None:
        await self._fetches.close()
        with suppress(SharedStateLost):
            await self._send_all()
        if len(self._outbox):
            _log.warning("%d changes never reached Redis", len(self._outbox))

    # What the follower asks (`Ours`).

    def heard(self, news: News) -> Callable[[], None]:
        sent = self._under_way.pop(news.number) if news.origin == self._redis.origin else None
        return partial(sent.finish, Made(1 if news.op == "put" else news.entries)) if sent else lambda: None

    def stored(self, news: News) -> Stored | None:
        return self._under_way.put(news.number) if news.origin == self._redis.origin else None

    def removed_since(self, news: News) -> bool:
        about = news.removing or Delete(news.what)
        told = max(self._removed.get(about, 0), self._removed.get(DeleteTenant(news.tenant), 0))
        return told >= news.position or self._removes(news.what, news.tenant)

    def decides(self, key: str, tenant: str) -> bool:
        return self._outbox.decides(key, tenant)

    def _removes(self, key: str, tenant: str) -> bool:
        return self._outbox.removes(key, tenant) or self._under_way.removes(key, tenant)

    def _overtaken(self, key: str, tenant: str, known: int) -> bool:
        """Whether an entry was removed after `known`, as far as this process can tell. What Redis has not heard of yet
        came after all that is known."""
        return self._outbox.removes(key, tenant) or self._follower.removals.since(key, tenant, known)

    # Changes of this process, while Redis is there.

    async def _make(self, change: Change, entries: int = 1) -> Made:
        if not self._state.up:
            return await self._make_here(change, entries)
        sent = Sent(change, entries)
        self._send_later(sent)
        return await sent.done

    def _send_later(self, sent: Sent) -> None:
        self._under_way.add(sent)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            await self._state.back()
            self._wake.clear()
            while change := next(iter(self._outbox.next(1)), None):  # came while Redis was just returning
                self._outbox.told(change)
                self._send_later(Sent(change))
            with suppress(SharedStateLost):
                await self._send_all()
                if self._tidy:
                    used, self._used, self._tidy = self._used, set(), False
                    held = [entry for key in used if (entry := self._memory.entries.held(key))]
                    await self._state.ask(partial(self._redis.touch, used=held))

    async def _send_all(self) -> None:
        while batch := self._under_way.take(_AT_ONCE):
            changes = [(number, sent.change) for number, sent in batch]
            outcomes = await self._state.ask(partial(self._redis.write, changes=changes))
            for (number, sent), outcome in zip(batch, outcomes, strict=True):
                self._acknowledged(number, sent, outcome)

    def _acknowledged(self, number: int, sent: Sent, outcome: bool | Mark) -> None:
        """Redis has made a change; the news of it tells when memory has it too."""
        sent.acknowledged = True
        self._outbox.told(sent.change)  # where Redis was lost in between
        if isinstance(outcome, Mark):
            sent.at = outcome.position
        elif not outcome:
            self._under_way.pop(number)
            self._refused(sent.change)
            sent.fail(Overtaken())

    def _refused(self, change: Change) -> None:
        """Another's removal overtook a put. Where it was done here it hid what Redis may hold instead."""
        if isinstance(change, Put) and self._memory.discard(change.entry):
            self._doubts += 1
            self._state.lose("an entry that was stored here alone was removed elsewhere")

    # While Redis is away.

    async def _make_here(self, change: Change, entries: int) -> Made:
        if isinstance(change, Put):
            self._memory.put(change.entry, change.vector)
        self._tell_later(change)
        await self._memory.settled()
        return Made(entries, alone=True)

    def _tell_later(self, change: Change) -> None:
        if not self._outbox.add(change):
            raise NotKept("Redis does not answer, and too many removals wait for it already")
        self._wake.set()

    def _lost(self) -> None:
        self._memory.watchers.pause()
        self._follower.lost()
        for sent in self._under_way.pop_all():
            self._make_lost(sent)

    def _make_lost(self, sent: Sent) -> None:
        """Do here what Redis may or may not have done."""
        match sent.change:
            case Put(entry, vector, known):
                if self._overtaken(entry.key, entry.tenant, known):
                    sent.fail(Overtaken())
                    return
                self._memory.put(entry, vector)
            case Delete(key):  # again: what came before it was made just now
                self._memory.remove(key)
            case DeleteTenant(tenant):
                self._memory.remove_tenant(tenant)
        if sent.acknowledged and not isinstance(sent.change, Put):
            self._was_removed(sent.change, sent.at)
        try:
            if not sent.acknowledged:
                self._tell_later(sent.change)
        except NotKept as error:
            sent.fail(error)
        sent.finish(Made(sent.entries, alone=True))

    def _was_removed(self, removal: Removing, position: int) -> None:
        """Redis knows of a removal of this process."""
        self._removed[removal] = position
        self._follower.removals.note(removal, position)

    async def _returned(self) -> None:
        """Redis is there (again). Raises `SharedStateLost` when it goes meanwhile."""
        while True:
            await self._tell()
            doubts = self._doubts
            await self._follower.catch_up(afresh=doubts > self._settled)
            self._settled = doubts
            while len(self._outbox):
                await self._tell()
            if self._settled == self._doubts:
                break
        self._removed.clear()
        self._memory.watchers.resume()
        self._wake.set()

    async def _tell(self) -> None:
        """Tell Redis what it has not heard of."""
        marks: dict[Removing, Mark] = {}
        while changes := self._outbox.next(_AT_ONCE):
            told = [(0, _after(change, marks)) for change in changes]
            outcomes = await self._state.try_to(partial(self._redis.write, changes=told))
            for change, outcome in zip(changes, outcomes, strict=True):
                self._outbox.told(change)
                if isinstance(outcome, Mark) and not isinstance(change, Put):
                    marks[change] = outcome
                    self._was_removed(change, outcome.position)
                elif not outcome:
                    self._refused(change)

    # Entries that memory does not hold.

    async def _fetched(self, key: str, deadline: Deadline) -> Stored | None:
        half = Deadline.after(deadline.remaining() / 2)  # so that there is time to look for what means the same
        try:
            return await self._fetches.submit(key, half)
        except ServiceError as error:
            raise SharedStateLost(f"Redis: {error}") from None

    async def _read(self, keys: Sequence[str]) -> list[Stored | None]:
        return await self._state.ask(partial(self._redis.read, keys=keys))


def _after(change: Change, marks: dict[Removing, Mark]) -> Change:
    """What was put here after a removal that was made here, too, is not overtaken by it: it knows of it."""
    if not isinstance(change, Put):
        return change
    about = (Delete(change.entry.key), DeleteTenant(change.entry.tenant))
    ours = (marks[removing] for removing in about if removing in marks)
    return replace(change, forgiven=tuple(mark.position for mark in ours if mark.before <= change.known))
