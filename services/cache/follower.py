"""Keeps memory the same as the shared entries: a snapshot at a sequence number, then one change after the other.

The changes of this process come the same way, so every replica's memory goes through the same sequence of changes, and
all end alike. A replica that starts, or finds a gap in the stream (cut, or Redis began again), loads a snapshot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from services.cache import redis_entries, snapshot
from services.cache.memory import Memory
from services.cache.redis_entries import RedisEntries, Stored, StreamChange
from services.cache.redis_verified import RedisVerified
from services.cache.tombstones import Removal
from services.runtime.shared_state import SharedState, SharedStateLost

if TYPE_CHECKING:
    from redis.asyncio import Redis

T = TypeVar("T")
_log = logging.getLogger(__name__)
_WAIT_MS = 500  # for a change; then the sequence number is compared
_AT_ONCE = 1_000  # changes in one reply


class Gap(Exception):
    """The stream does not go on from what memory has."""


class Follower:
    """`sequence`: of the last change that memory has. `turn`: how often Redis was lost; a reply to a request of an
    earlier turn is out of date."""

    def __init__(self, state: SharedState, memory: Memory, redis: RedisEntries, verified: RedisVerified):
        self._state, self._memory, self._redis, self._verified = state, memory, redis, verified
        self._advanced = asyncio.Event()
        self._searchable = 0  # like `sequence`, of what may be found by meaning too
        self.sequence = self.turn = 0

    async def run(self) -> None:
        """Follow the changes while Redis answers, until cancelled."""
        while True:
            await self._state.back()
            try:
                await self._follow()
            except Gap as gap:
                self._state.lose(f"changes were missed: {gap}")
            except SharedStateLost:
                continue

    def lost(self) -> None:
        """Redis was lost: memory stays as it is until `catch_up`."""
        self.turn += 1
        self._wake()

    async def catch_up(self) -> None:
        """Bring memory up to date, by the changes since `sequence` or by a snapshot. Raises `SharedStateLost`."""
        await self._ask(self._redis.begin)
        while not (self.sequence and await self._resume()):  # also what was changed while the snapshot was loaded
            await self._load()

    async def reached(self, sequence: int, turn: int) -> None:
        """Return when memory has a change, and it may be found by meaning. Raises `SharedStateLost` where the `turn` is
        over before that."""
        while turn == self.turn and self._searchable < sequence:
            await self._advanced.wait()
        self._check(turn)

    async def _follow(self) -> None:
        turn = self.turn
        read = partial(redis_entries.changes_after, sequence=self.sequence, count=_AT_ONCE, wait_ms=_WAIT_MS)
        changes: Sequence[StreamChange] = await self._state.follow(read, _WAIT_MS / 1000)
        self._check(turn)
        await self._apply(changes or await self._missed())

    async def _resume(self) -> bool:
        """Apply what was changed since `sequence`; False where some of it is not in the stream any more."""
        try:
            while changes := await self._missed():
                await self._apply(changes)
                if len(changes) < _AT_ONCE:  # else: under load there would always be more
                    break
        except Gap:
            return False
        return True

    async def _missed(self) -> Sequence[StreamChange]:
        """The changes since `sequence`; none where that is the last one. Raises `Gap`."""
        if await self._ask(redis_entries.last_sequence) == self.sequence:
            return []
        read = partial(redis_entries.changes_after, sequence=self.sequence, count=_AT_ONCE, wait_ms=None)
        if changes := await self._ask(read):
            return changes
        raise Gap(f"the stream holds nothing after {self.sequence}")

    async def _load(self) -> None:
        """Have memory hold a snapshot."""
        encryption = self._redis.encryption
        before = encryption.unreadable
        found = await snapshot.load(self._ask, self._redis, self._memory)
        if unreadable := encryption.unreadable - before:
            text = "%d of %d entries in Redis cannot be read with this encryption_key, and are left there"
            _log.error(text, unreadable, unreadable + len(found.entries))
        self._memory.overflowed = not found.complete
        self._memory.forget([entry.key for entry in self._memory.entries if entry.key not in found.entries])
        for some in snapshot.parts(list(found.entries.values())[::-1], snapshot.READ):  # the most recently used last
            for entry, vector in some:
                if entry.key in found.held and not self._memory.same(entry):
                    continue  # there was no room for it, and its vector is gone
                self._memory.learn(entry, vector, self._redis.now_ms())
            await self._settle()
        await self._verified.load(self._ask)
        self._memory.stats.snapshots += 1
        self.sequence = self._searchable = found.sequence

    async def _apply(self, changes: Sequence[StreamChange]) -> None:
        self._contiguous(changes)
        for some in snapshot.parts(changes, snapshot.READ):
            keys = [change.key for change in some if change.op == "put"]
            read = await self._ask(partial(self._redis.read, keys=keys)) if keys else []
            stored = dict(zip(keys, read, strict=True))
            for change in some:
                self._apply_one(change, stored.get(change.key))
            await self._settle()
            self._searchable = self.sequence
            self._wake()

    def _contiguous(self, changes: Sequence[StreamChange]) -> None:
        last = self.sequence
        for change in changes:
            if change.previous != last:
                raise Gap(f"{change.sequence} comes after {change.previous}, and {last} was the last one known")
            if not change.known:
                raise Gap(f"{change.op} is nothing this version knows")
            last = change.sequence

    def _apply_one(self, change: StreamChange, stored: Stored | None) -> None:
        if change.removal:
            self._memory.remove(change.removal)
        else:
            self._put(change, stored)
        self.sequence = change.sequence

    def _put(self, change: StreamChange, stored: Stored | None) -> None:
        if change.entries:  # also where memory has none: a gateway may hold a copy from another replica
            self._memory.watchers.publish(Removal(key=change.key))
        if stored:
            self._memory.learn(*stored, self._redis.now_ms(), published=bool(change.entries))
        else:  # its lifetime is over, or its removal comes next
            self._memory.forget([change.key], published=bool(change.entries))

    async def _ask(self, call: Callable[[Redis], Awaitable[T]]) -> T:
        turn = self.turn
        reply = await self._state.try_to(call)
        self._check(turn)
        return reply

    async def _settle(self) -> None:
        turn = self.turn
        await self._memory.settled()
        self._check(turn)

    def _check(self, turn: int) -> None:
        if turn != self.turn:
            raise SharedStateLost("Redis was lost meanwhile")

    def _wake(self) -> None:
        advanced, self._advanced = self._advanced, asyncio.Event()
        advanced.set()
