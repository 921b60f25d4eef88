"""Entries in a file of this process's own. Memory is what is served; the journal follows it.

Every change is made in memory and queued for the disk in one step of the event loop, so both go through the same order
of changes, and a store is answered when its commit is done. What leaves memory leaves the disk: one holds no more than
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.cache import database
from services.cache.changes import Delete, DeleteTenant, Removing
from services.cache.database import Database, Statement
from services.cache.entries import Entry
from services.cache.errors import NotKept
from services.cache.identity import Identity
from services.cache.journal import Journal
from services.cache.memory import Memory
from services.cache.removals import Removals
from services.cache.room import Room
from services.cache.store import Made
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline


class FileStore:
    """A `Store` on SQLite. At most `max_waiting_bytes` of entries wait for the disk. `now_ms` is Unix time in
    milliseconds."""

    alone, queued = False, 0

    def __init__(
        self,
        file: Database,
        memory: Memory,
        embedded_by: str,
        stale_ms: int,
        max_waiting_bytes: int,
        now_ms: Callable[[], int],
    ):
        self._file, self._memory, self._journal = file, memory, Journal(file)
        self._room = Room(max_waiting_bytes)
        self._embedded_by, self._stale_ms, self._now_ms = embedded_by, stale_ms, now_ms
        self._touched: asyncio.Future[None] | None = None
        self.known = self._next(0)
        self._removals = Removals(self.known)

    def overtaken(self, question: Identity, epoch: int) -> bool:
        return self._removals.since(question.key, question.tenant, epoch)

    async def insert(self, entry: Entry, vector: Vector | None, known: int) -> Made:
        tenant, size = entry.tenant, entry.size
        self._room.take(tenant, size)
        evicted = self._memory.put(entry, vector)
        committed = self._journal.append(database.insert(entry, self._embedded_by, vector))
        committed.add_done_callback(lambda _: self._room.give_back(tenant, size))
        self._delete(evicted)
        await self._memory.settled()
        try:
            await asyncio.shield(committed)  # it waits on when its caller leaves
        except NotKept:
            if self._memory.discard(entry):
                self._delete([entry])
            raise
        return Made(1)

    async def delete(self, key: str) -> Made:
        entry = self._memory.remove(key)
        # On disk it may still be, where memory has none: an earlier delete may have failed.
        await self._remove(Delete(key), database.delete([key]))
        return Made(1 if entry else 0)

    async def delete_tenant(self, tenant: str) -> Made:
        gone = self._memory.remove_tenant(tenant)
        await self._remove(DeleteTenant(tenant), database.delete_tenant(tenant))
        return Made(len(gone))

    async def fetch(self, question: Identity, deadline: Deadline) -> None:
        """Memory holds everything."""

    def touch(self, entries: list[Entry]) -> None:
        if self._touched is None or self._touched.done():  # while the disk stands still they would pile up
            self._touched = self._journal.append(database.touch(entries))

    def expired(self, entries: list[Entry]) -> None:
        self._delete(entries)

    async def load(self) -> None:
        now_ms = self._now_ms()
        stored = await asyncio.to_thread(lambda: list(self._file.load(self._embedded_by, now_ms - self._stale_ms)))
        # What was removed in an earlier life is not known: it counts as later than every epoch from then.
        self.known = self._next(await asyncio.to_thread(self._file.position))
        await asyncio.to_thread(self._file.apply, [database.position(self.known)])
        self._removals = Removals(self.known)
        self._delete(self._memory.load(stored, now_ms))

    async def run(self) -> None:
        await self._journal.run()

    async def close(self) -> None:
        await self._journal.close()

    def _next(self, position: int) -> int:
        """The position after one: microseconds of Unix time, or one more."""
        return max(position + 1, self._now_ms() * 1_000)

    def _remove(self, removal: Removing, statement: Statement) -> asyncio.Future[None]:
        self.known = self._next(self.known)
        self._removals.note(removal, self.known)
        self._journal.append(database.position(self.known))
        return self._journal.append(statement)

    def _delete(self, entries: list[Entry]) -> None:
        if entries:
            self._journal.append(database.delete(entry.key for entry in entries))
