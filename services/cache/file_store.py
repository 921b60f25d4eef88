"""Entries in a file of this process's own. Memory is what is served; the file follows it, by group commit.

Every change is made in memory and queued for the disk in one step of the event loop, so both go through the same order
of changes, and a store is answered when its commit is done. An entry that leaves memory is deleted from the file: both
hold the same entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from services.cache import database
from services.cache.config import CacheSettings
from services.cache.database import Database
from services.cache.encryption import Encryption, keys
from services.cache.entries import Entry
from services.cache.errors import Conflict, DatabaseRefused
from services.cache.group_commit import GroupCommit
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.no_database import NoDatabase
from services.cache.semantic_match.record import RECORDS
from services.cache.store import OpenStore, Store, Used
from services.cache.tombstones import Removal, Tombstones
from services.runtime.deadline import Deadline
from services.runtime.policy.waiting_bytes import WaitingBytes

if TYPE_CHECKING:
    from services.cache.vectors import Vector

_log = logging.getLogger(__name__)
_LOADED_AT_ONCE = 10_000  # entries
_REMOVAL_BYTES = 2_048  # of its statements, while they wait for the disk


class FileStore:
    """A `Store` on SQLite, or in memory alone. At most `max_waiting_bytes` of entries and removals wait for the
    disk. `now_ms` is Unix time in milliseconds."""

    local = False

    def __init__(
        self,
        file: Database | NoDatabase,
        memory: Memory,
        embedded_by: str,
        stale_ms: int,
        max_waiting_bytes: int,
        now_ms: Callable[[], int],
    ):
        self._file, self._memory, self._commits = file, memory, GroupCommit(file)
        self._waiting = WaitingBytes(max_waiting_bytes)
        self._embedded_by, self._stale_ms, self._now_ms = embedded_by, stale_ms, now_ms
        self._touched: asyncio.Future[None] | None = None
        self._verified: asyncio.Future[None] | None = None
        self.sequence = self._after(0)
        self._tombstones = Tombstones(self.sequence)

    async def insert(self, entry: Entry, vector: Vector | None, epoch: int) -> bool:
        if self._tombstones.conflict(entry.key, entry.tenant, epoch):
            raise Conflict
        self._waiting.take(entry.tenant, entry.size)
        if held := self._memory.entries.held(entry.key):
            entry.least_score = held.least_score
        evicted = self._memory.put(entry, vector)
        self._commits.append(database.worth([entry]))
        committed = self._commits.append(database.insert(entry, self._embedded_by, vector, self._file.encryption))
        committed.add_done_callback(partial(self._committed, entry))
        self._delete([entry.key for entry in evicted])
        # First: where the disk refuses it, memory has let go of it when this raises. It goes on when its caller leaves.
        await asyncio.shield(committed)
        await self._memory.settled()
        return True

    async def remove(self, removal: Removal) -> int:
        self._waiting.take(removal.tenant, _REMOVAL_BYTES)
        removed = self._memory.remove(removal)
        self.sequence = self._after(self.sequence)
        self._tombstones.add(removal, self.sequence)
        self._commits.append(database.sequence(self.sequence))
        # On disk it may still be, where memory has none: an earlier removal may have failed.
        if not removal.key:
            self._commits.append(database.forget(removal.tenant))
        committed = self._commits.append(database.remove(removal))
        committed.add_done_callback(lambda _: self._waiting.give_back(removal.tenant, _REMOVAL_BYTES))
        await asyncio.shield(committed)  # it waits for the disk, and counts as waiting, when its caller leaves
        return removed

    async def tighten(self, key: str, tenant: str, least_score: float) -> bool:
        entry = self._memory.tighten(key, tenant, least_score)
        if entry is None:
            return False
        await self._commits.append(database.tighten(entry))
        return True

    async def fetch(self, question: KeyedQuestion, deadline: Deadline) -> None:
        """Memory holds everything."""

    def sweep(self, used: Sequence[Used], gone: Sequence[Entry]) -> None:
        if used and (self._touched is None or self._touched.done()):  # while the disk stands still they would pile up
            entries = [entry for entry, _ in used]
            self._commits.append(database.worth(entries))
            self._touched = self._commits.append(database.touch(entries))
        self._keep_verified()
        self._delete([entry.key for entry in gone])

    async def load(self) -> None:
        now_ms = self._now_ms()
        stored = self._file.load(self._embedded_by, now_ms - self._stale_ms)
        evicted: list[str] = []  # keys: the entries may be far more than memory has room for
        while some := await asyncio.to_thread(lambda: list(islice(stored, _LOADED_AT_ONCE))):
            evicted += [entry.key for entry in self._memory.load(some, now_ms)]
        self._memory.loaded()
        if unreadable := self._file.encryption.unreadable:
            text = "%d of %d entries in the database cannot be read with this encryption_key, and are left there"
            _log.error(text, unreadable, unreadable + len(self._memory.entries) + len(evicted))
        # Removals before this start are not known: they count as later than every epoch of that time.
        self.sequence = self._after(await asyncio.to_thread(self._file.sequence))
        self._commits.append(database.sequence(self.sequence))
        await self._commits.flush()
        self._tombstones = Tombstones(self.sequence)
        self._delete(evicted)
        if made_by := self._memory.thresholds.made_by:
            for traffic, row in await asyncio.to_thread(self._file.verified, made_by):
                self._memory.thresholds.resume(traffic, row)

    async def run(self) -> None:
        await self._commits.run()

    async def close(self) -> None:
        await self._commits.close()

    def _after(self, sequence: int) -> int:
        """The next sequence number: microseconds of Unix time, or one more."""
        return max(sequence + 1, self._now_ms() * 1_000)

    def _keep_verified(self) -> None:
        if self._verified and not self._verified.done():
            return
        news = list(self._memory.thresholds.news())
        for traffic, record in news:
            record.take()
            made_by, now_ms = self._memory.thresholds.made_by, self._now_ms()
            self._commits.append(database.verified(traffic, made_by, now_ms, record.row))
        if news:
            self._verified = self._commits.append(database.keep_verified(RECORDS + 1))  # and that of all tenants

    def _committed(self, entry: Entry, write: asyncio.Future[None]) -> None:
        """An entry is on disk, or the disk refused it: then memory lets go of it, also when its caller has left."""
        self._waiting.give_back(entry.tenant, entry.size)
        if not write.cancelled() and write.exception() and self._memory.discard(entry):
            self._delete([entry.key])

    def _delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._commits.append(database.delete(keys))


@asynccontextmanager
async def open_store(
    settings: CacheSettings, memory: Memory, embedded_by: str, now_ms: Callable[[], int]
) -> AsyncIterator[Store]:
    """The file that `database` names, or none. Ends the process where it is not usable."""
    encryption = Encryption(keys(settings.encryption_key.get_secret_value()))
    file: Database | NoDatabase = NoDatabase()
    try:
        if settings.database:
            file = Database(settings.database, encryption)
    except DatabaseRefused as error:
        _log.critical("%s", error)
        raise SystemExit(2) from None
    yield FileStore(file, memory, embedded_by, settings.stale_ms, settings.max_waiting_bytes, now_ms)


_: OpenStore = open_store
