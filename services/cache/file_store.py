"""Entries in a file of this process's own. Memory is what is served; the journal follows it.

Every change is made in memory and queued for the disk in one step of the event loop, so both go through the same order
of changes, and a store is answered when its commit is done. What leaves memory leaves the disk: one holds no more than
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.cache import database
from services.cache.database import Database
from services.cache.entries import Entry
from services.cache.errors import NotKept
from services.cache.identity import Identity
from services.cache.journal import Journal
from services.cache.memory import Memory
from services.cache.store import Made
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline


class FileStore:
    """A `Store` on SQLite. `now_ms` is Unix time in milliseconds."""

    alone, queued = False, 0
    known = 0  # nobody else changes anything, and what this process removes memory tells by itself

    def __init__(self, file: Database, memory: Memory, embedded_by: str, stale_ms: int, now_ms: Callable[[], int]):
        self._file, self._memory, self._journal = file, memory, Journal(file)
        self._embedded_by, self._stale_ms, self._now_ms = embedded_by, stale_ms, now_ms

    async def insert(self, entry: Entry, vector: Vector | None, known: int) -> Made:
        evicted = self._memory.put(entry, vector)
        committed = self._journal.append(database.insert(entry, self._embedded_by, vector))
        self._delete(evicted)
        await self._memory.settled()
        try:
            await committed
        except NotKept:
            if self._memory.discard(entry):
                self._delete([entry])
            raise
        return Made(1)

    async def delete(self, key: str) -> Made:
        entry = self._memory.remove(key)
        # On disk it may still be, where memory has none: an earlier delete may have failed.
        await self._journal.append(database.delete([key]))
        return Made(1 if entry else 0)

    async def delete_tenant(self, tenant: str) -> Made:
        gone = self._memory.remove_tenant(tenant)
        await self._journal.append(database.delete_tenant(tenant))
        return Made(len(gone))

    async def fetch(self, question: Identity, deadline: Deadline) -> None:
        """Memory holds everything."""

    def touch(self, entries: list[Entry]) -> None:
        self._journal.append(database.touch(entries))

    def expired(self, entries: list[Entry]) -> None:
        self._delete(entries)

    async def load(self) -> None:
        now_ms = self._now_ms()
        stored = await asyncio.to_thread(lambda: list(self._file.load(self._embedded_by, now_ms - self._stale_ms)))
        self._delete(self._memory.load(stored, now_ms))

    async def run(self) -> None:
        await self._journal.run()

    async def close(self) -> None:
        await self._journal.close()

    def _delete(self, entries: list[Entry]) -> None:
        if entries:
            self._journal.append(database.delete(entry.key for entry in entries))
