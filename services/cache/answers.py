"""The cache itself: the entry for this very question, else the nearest that means the same.

An entry whose time is over is no hit. For a while it stays, to be told of with a miss of its very question: who would
have no answer at all may prefer an old one.

Memory is what is served; the journal follows it. Every change is made in memory and queued for the disk in one step of
the event loop, so both go through the same order of changes, and a store is answered when its commit is done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TypeVar

from services.cache import database, guard
from services.cache.embedding import Embedder
from services.cache.entries import Entries, Entry
from services.cache.errors import EmbeddingTooLate, NotKept, Overtaken
from services.cache.identity import Identity
from services.cache.journal import Journal
from services.cache.vectors import Vector, VectorIndex, scan_on_one_core
from services.cache.watch import Removal, Watchers
from services.runtime.deadline import Deadline

T = TypeVar("T")
_CANDIDATES = 8  # the nearest may be refused while the next is right


class Verdict(Enum):
    """How a lookup ended."""

    MISS = "miss"
    EXACT = "exact"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found. `similarity` is that of the nearest question, None where none was compared.

    `stale`, with a miss: the entry for this very question, whose time is over.
    """

    verdict: Verdict
    entry: Entry | None = None
    ttl_ms: int = 0
    similarity: float | None = None
    refused: str = ""
    stale: Entry | None = None


@dataclass(eq=False, slots=True)
class _Arriving:
    """A store that has not reached the entries yet."""

    question: Identity
    overtaken: bool = False


@dataclass(slots=True)
class Stats:
    """Counts since the start."""

    exact_hits: int = 0
    semantic_hits: int = 0
    misses: int = 0
    refused: int = 0
    stores: int = 0
    evictions: int = 0
    expirations: int = 0


class Answers:
    """Answers by question. `now_ms` is Unix time in milliseconds."""

    def __init__(
        self,
        entries: Entries,
        journal: Journal,
        embedder: Embedder,
        vectors: VectorIndex,
        watchers: Watchers,
        now_ms: Callable[[], int],
    ):
        self.entries, self.embedder, self.watchers = entries, embedder, watchers
        self.stats = Stats()
        self._journal, self._vectors, self._now_ms = journal, vectors, now_ms
        self._vectors_thread = ThreadPoolExecutor(1, "vectors", initializer=scan_on_one_core)
        self._used: dict[str, Entry] = {}
        self._arriving: set[_Arriving] = set()

    def load(self, stored: Iterable[tuple[Entry, Vector | None]]) -> None:
        """Take over what a database holds, least recently used first. Its embeddings are used as they are."""
        partitions: defaultdict[bytes, list[tuple[str, Vector]]] = defaultdict(list)
        evicted: list[Entry] = []
        now_ms = self._now_ms()
        for entry, vector in stored:
            evicted += self.entries.put(entry)
            if vector is not None and entry.expires_at_ms > now_ms:
                partitions[entry.partition].append((entry.key, vector))
        for partition, rows in partitions.items():
            self._vectors.add(partition, rows)
        self._forget(evicted)

    async def lookup(self, question: Identity, threshold: float, deadline: Deadline) -> Found:
        """The exact entry, else the nearest with a similarity of at least `threshold`; 1 asks for the exact one alone.

        Raises `EmbeddingTooLate` when the deadline passes before the question could be compared.
        """
        entry = self.entries.get(question.key, self._now_ms())
        if entry:
            self.stats.exact_hits += 1
            return self._serve(Verdict.EXACT, entry, None)
        found = Found(Verdict.MISS)
        if threshold < 1 and question.partition in self._vectors:
            found = await self._nearest(question, threshold, deadline)
        if found.verdict is Verdict.SEMANTIC:
            self.stats.semantic_hits += 1
            return found
        self.stats.misses += 1
        self.stats.refused += bool(found.refused)
        return replace(found, stale=self.entries.stale(question.key, self._now_ms()))

    async def store(self, question: Identity, answer: bytes, ttl_ms: int, deadline: Deadline) -> None:
        """Keep an answer for `ttl_ms`. When this returns it is on disk; when it raises it is not kept at all.

        Raises `Overtaken` when its entry or its tenant was removed meanwhile: what was removed must not come back.
        """
        with self._on_its_way(question) as arriving:
            vector = await self.embed(question.asked, deadline)
        if arriving.overtaken:
            raise Overtaken("the entry or its tenant was invalidated while its answer was being stored")
        now_ms = self._now_ms()
        entry = Entry(
            question.key, question.tenant, question.partition, question.asked, answer, now_ms + ttl_ms, now_ms
        )
        replaced = self.entries.pop(entry.key)
        if replaced and not replaced.lapsed:
            self.watchers.publish(Removal(key=entry.key))
        evicted = self.entries.put(entry)
        committed = self._journal.append(database.insert(entry, self.embedder.name, vector))
        indexed = self._on_vectors_thread(partial(self._index, entry, vector))
        self._forget(evicted)
        self.stats.stores += 1
        self.stats.evictions += len(evicted)
        await indexed
        try:
            await committed
        except NotKept:
            if self.entries.get(entry.key, 0) is entry:
                self.entries.pop(entry.key)
                self._forget([entry])
            raise

    async def remove(self, key: str) -> int:
        """Remove an entry, from the disk too before this returns. Returns how many there were: 0 or 1."""
        self._overtake(lambda question: question.key == key)
        entry = self.entries.pop(key)
        # On disk it may still be, where memory has none: an earlier delete may have failed.
        deleted = self._journal.append(database.delete([key]))
        if entry:
            self._drop([entry])
            self.watchers.publish(Removal(key=key))
        await deleted
        return 1 if entry else 0

    async def remove_tenant(self, tenant: str) -> int:
        """Remove all entries of a tenant, from the disk too before this returns. Returns how many there were."""
        self._overtake(lambda question: question.tenant == tenant)
        gone = self.entries.pop_tenant(tenant)
        self.watchers.publish(Removal(tenant=tenant))
        deleted = self._journal.append(database.delete_tenant(tenant))
        self._drop(gone)
        await deleted
        return len(gone)

    def sweep(self) -> None:
        """Retire what has lapsed, remove what was kept long enough, and write down what was used since the last sweep.

        Lapsed entries leave the index: there they would only hide others.
        """
        lapsed, gone = self.entries.expire(self._now_ms())
        self.stats.expirations += len(gone)
        used, self._used = self._used, {}
        if used:
            self._journal.append(database.touch(used.values()))
        self._retire(lapsed)
        if gone:
            self._journal.append(database.delete(entry.key for entry in gone))

    def close(self) -> None:
        """End the threads. Nothing may be asked of the cache any more."""
        self._vectors_thread.shutdown()
        self.embedder.close()

    async def _nearest(self, question: Identity, threshold: float, deadline: Deadline) -> Found:
        vector = await self.embed(question.asked, deadline)
        if vector is None:
            return Found(Verdict.MISS)
        near = await self._on_vectors_thread(partial(self._vectors.nearest, question.partition, vector, _CANDIDATES))
        refused = ""
        for key, similarity in near:
            entry = self.entries.get(key, self._now_ms())
            if similarity < threshold:
                break
            if entry is None:  # gone since it was found
                continue
            difference = guard.difference(question.asked, entry.asked)
            if not difference:
                return self._serve(Verdict.SEMANTIC, entry, similarity)
            refused = refused or difference
        return Found(Verdict.MISS, similarity=near[0][1] if near else None, refused=refused)

    def _serve(self, verdict: Verdict, entry: Entry, similarity: float | None) -> Found:
        now_ms = self._now_ms()
        self.entries.use(entry, now_ms)
        self._used[entry.key] = entry
        return Found(verdict, entry, entry.expires_at_ms - now_ms, similarity)

    async def embed(self, text: str, deadline: Deadline) -> Vector | None:
        """A text's unit vector, or None where it is too long. Raises `EmbeddingTooLate`."""
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(None if remaining == float("inf") else remaining):
                return await self.embedder.embed(text)
        except TimeoutError:
            raise EmbeddingTooLate("the time was over before the question was embedded") from None

    def _index(self, entry: Entry, vector: Vector | None) -> None:
        self._vectors.remove(entry.partition, [entry.key])
        if vector is not None:
            self._vectors.add(entry.partition, [(entry.key, vector)])

    def _forget(self, gone: Sequence[Entry]) -> None:
        """Entries that left memory leave the index, the disk and the watchers' copies too."""
        if gone:
            self._journal.append(database.delete(entry.key for entry in gone))
            self._retire(gone)

    def _retire(self, entries: Sequence[Entry]) -> None:
        """Entries that are hits no more leave the index and the watchers' copies."""
        for entry in entries:
            self.watchers.publish(Removal(key=entry.key))
        self._drop(entries)

    @contextmanager
    def _on_its_way(self, question: Identity) -> Iterator[_Arriving]:
        arriving = _Arriving(question)
        self._arriving.add(arriving)
        try:
            yield arriving
        finally:
            self._arriving.discard(arriving)

    def _overtake(self, removed: Callable[[Identity], bool]) -> None:
        for arriving in self._arriving:
            arriving.overtaken |= removed(arriving.question)

    def _drop(self, gone: Sequence[Entry]) -> None:
        partitions: defaultdict[bytes, list[str]] = defaultdict(list)
        for entry in gone:
            partitions[entry.partition].append(entry.key)
        for partition, keys in partitions.items():
            self._on_vectors_thread(partial(self._vectors.remove, partition, keys))

    def _on_vectors_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Queued at once, so that changes reach the index in the order they were made."""
        return asyncio.get_running_loop().run_in_executor(self._vectors_thread, work)
