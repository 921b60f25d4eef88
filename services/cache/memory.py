"""The memory that this process serves from: the entries, the index of their questions, and watchers of removals.

Every change is made to the entries at once and queued for the index in the same step of the event loop, so both go
through the same order of changes. A store keeps entries beyond this process, and decides which of them
memory holds.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from services.cache.entries import Entries, Entry
from services.cache.keyed_question import KeyedQuestion
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.tombstones import Removal
from services.cache.watch import Watchers
from services.runtime.policy.fair_slots import FairTurns

if TYPE_CHECKING:
    from services.cache.vectors import Vector, VectorIndex

T = TypeVar("T")
_SEARCHES = 2  # taken out of turn: one runs, and one waits for the thread meanwhile


@dataclass(slots=True)
class CacheStats:
    """Counts since the start."""

    exact_hits: int = 0
    semantic_hits: int = 0
    misses: int = 0
    refused: int = 0
    stores: int = 0
    skipped: int = 0
    evictions: int = 0
    expirations: int = 0
    fetched: int = 0
    snapshots: int = 0
    local: int = 0
    tightened: int = 0
    unknown_language: int = 0


@dataclass(eq=False, slots=True)
class ArrivingEntry:
    """A copy of an entry on its way from the shared store."""

    question: KeyedQuestion
    outdated: bool = False  # since then it was removed, or another entry took its place


class Memory:
    """The entries held, which may be searched by meaning, and what was verified. `close` ends its threads."""

    def __init__(self, entries: Entries, vectors: VectorIndex | None, watchers: Watchers, thresholds: Thresholds):
        """Without `vectors` no two questions are ever compared."""
        self.entries, self.watchers, self.thresholds, self.stats = entries, watchers, thresholds, CacheStats()
        self._vectors = vectors
        begin = None if vectors is None else vectors.begin
        self._vectors_thread = ThreadPoolExecutor(1, "vectors", initializer=begin)
        self._rebuilds = None if vectors is None else vectors.rebuilds(self._vectors_thread)
        self._searches = FairTurns(_SEARCHES)
        self._arriving: set[ArrivingEntry] = set()
        self._indexing = Counter[bytes]()  # vectors on their way into the index, by partition
        self.overflowed = False  # something had to leave for lack of room

    def load(self, stored: Iterable[tuple[Entry, Vector | None]], now_ms: int) -> list[Entry]:
        """Take over what a store holds, least recently used first, before anything is served; then call `loaded`.
        Returns those for which there was no room."""
        partitions: defaultdict[bytes, list[tuple[str, Vector]]] = defaultdict(list)
        evicted: list[Entry] = []
        for entry, vector in stored:
            evicted += self.entries.put(entry)
            if vector is not None and entry.expires_at_ms > now_ms:
                partitions[entry.partition].append((entry.key, vector))
        if self._vectors is not None:
            for partition, rows in partitions.items():
                self._vectors_thread.submit(self._vectors.add, partition, rows).result()
        self._drop(evicted)
        return evicted

    def loaded(self) -> None:
        """Everything was taken over: what is many can be searched faster from now on."""
        for partition in () if self._vectors is None else self._vectors.partitions():
            self._on_vectors_thread(partial(self._reconsider, partition))

    def put(self, entry: Entry, vector: Vector | None, published: bool = False) -> list[Entry]:
        """Hold an entry in place of one of the same key, and notify watchers, unless the change is `published` already.
        Returns the entries that were evicted for it. After `settled` it can be found by meaning."""
        replaced = self.entries.pop(entry.key)
        if replaced:
            entry.uses = max(entry.uses, replaced.uses)  # it is asked for as often
        if replaced and not (replaced.lapsed or published):
            self.watchers.publish(Removal(key=entry.key))
        for arriving in self._arriving:
            arriving.outdated |= arriving.question.key == entry.key
        evicted = self.entries.put(entry)
        vectors = [] if vector is None else [(entry.key, vector)]
        indexed = self._on_vectors_thread(partial(self._index, entry.partition, [entry.key], vectors))
        if vectors:
            self._indexing[entry.partition] += 1
            indexed.add_done_callback(lambda _: self._has_indexed(entry.partition))
        self._drop(evicted)  # watchers' copies stay: they are not wrong, and end soon
        self.stats.evictions += len(evicted)
        self.overflowed |= bool(evicted)
        return evicted

    def learn(self, entry: Entry, vector: Vector | None, now_ms: int, published: bool = False) -> None:
        """Hold an entry as others have it; one that is held as it is stays as it is."""
        if not self.same(entry):
            self.put(entry, vector if entry.expires_at_ms > now_ms else None, published)

    def same(self, entry: Entry) -> Entry | None:
        """The entry held, where it is this one but for its last use."""
        held = self.entries.held(entry.key)
        if held and _content(held) == _content(entry):
            return held
        return None

    def tighten(self, key: str, tenant: str, least_score: float) -> Entry | None:
        """Have an entry held, where it is this tenant's, be a hit of what is merely alike from a score on."""
        entry = self.entries.held(key)
        if entry is None or entry.tenant != tenant:
            return None
        entry.least_score = max(entry.least_score, least_score)
        return entry

    async def settled(self) -> None:
        """Return when what was changed so far may be found by meaning, or no more."""
        await self._on_vectors_thread(lambda: None)

    def discard(self, entry: Entry) -> bool:
        """Let go of this very entry, and say whether it was held: it is not kept, or no more."""
        if self.entries.held(entry.key) is not entry:
            return False
        self.entries.pop(entry.key)
        self._retire([entry])
        return True

    def forget(self, keys: Iterable[str], published: bool = False) -> None:
        """Drop entries that the store does not keep any more, though no caller removed them, and notify watchers,
        unless the change is `published` already."""
        gone = [entry for key in keys if (entry := self.entries.pop(key))]
        if published:
            self._drop(gone)
        else:
            self._retire(gone)

    def remove(self, removal: Removal) -> int:
        """Drop removed entries, wherever they are held or on their way to. Returns how many were held."""
        for arriving in self._arriving:
            arriving.outdated |= removal.covers(arriving.question.key, arriving.question.tenant)
        if removal.key:
            held = self.entries.held(removal.key)
            if held and not removal.covers(held.key, held.tenant):
                return 0
            gone = [entry] if (entry := self.entries.pop(removal.key)) else []
        else:
            gone = self.entries.pop_tenant(removal.tenant)
            self.thresholds.forget(removal.tenant)
        self.watchers.publish(removal)
        self._drop(gone)
        return len(gone)

    def expire(self, now_ms: int) -> list[Entry]:
        """Let go of what was kept long enough after its time, which is returned.

        Lapsed entries leave the index: there they would only hide others. Watchers know when their copies end.
        """
        lapsed, gone = self.entries.expire(now_ms)
        self.stats.expirations += len(gone)
        self._drop(lapsed)
        return gone

    def may_be_near(self, question: KeyedQuestion) -> bool:
        """Whether there is anything to compare a question with, or soon will be: `nearest` waits for that."""
        if self._vectors is None:
            return False
        return question.partition in self._indexing or question.partition in self._vectors

    async def nearest(self, question: KeyedQuestion, vector: Vector, count: int) -> Sequence[tuple[str, float]]:
        """Up to `count` (key, cosine similarity) in the question's partition, nearest first. Tenants take turns."""
        assert self._vectors is not None  # else nothing `may_be_near`
        search = partial(self._vectors.nearest, question.partition, vector, count)
        await self._searches.begin(question.tenant)
        try:
            return await self._on_vectors_thread(search)
        finally:
            self._searches.ended()

    @contextmanager
    def on_its_way(self, question: KeyedQuestion) -> Iterator[ArrivingEntry]:
        """A copy that will be there soon: has whether a change inside makes it outdated."""
        arriving = ArrivingEntry(question)
        self._arriving.add(arriving)
        try:
            yield arriving
        finally:
            self._arriving.discard(arriving)

    def close(self) -> None:
        """End the threads. Nothing may be asked of memory any more."""
        if self._rebuilds:
            self._rebuilds.close()
        self._vectors_thread.shutdown()

    def _index(self, partition: bytes, keys: Iterable[str], vectors: Iterable[tuple[str, Vector]] = ()) -> None:
        """Vectors by key in place of those of `keys`."""
        if self._vectors is not None:
            self._vectors.remove(partition, keys)
            if vectors:
                self._vectors.add(partition, vectors)
            self._reconsider(partition)

    def _has_indexed(self, partition: bytes) -> None:
        self._indexing[partition] -= 1
        if not self._indexing[partition]:
            del self._indexing[partition]

    def _reconsider(self, partition: bytes) -> None:
        if self._vectors is not None and self._rebuilds:
            self._rebuilds.consider(self._vectors.partition(partition))

    def _retire(self, entries: Collection[Entry]) -> None:
        """Entries that are hits no more leave the index and the watchers' copies."""
        for entry in entries:
            self.watchers.publish(Removal(key=entry.key))
        self._drop(entries)

    def _drop(self, gone: Collection[Entry]) -> None:
        partitions: defaultdict[bytes, list[str]] = defaultdict(list)
        for entry in gone:
            partitions[entry.partition].append(entry.key)
        if partitions and self._vectors is not None:
            self._on_vectors_thread(partial(self._leave_index, partitions))

    def _leave_index(self, partitions: Mapping[bytes, Collection[str]]) -> None:
        for partition, keys in partitions.items():
            self._index(partition, keys)

    def _on_vectors_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Queued at once, so that changes reach the index in the order they were made."""
        return asyncio.get_running_loop().run_in_executor(self._vectors_thread, work)


def _content(entry: Entry) -> tuple[object, ...]:
    return entry.answer, entry.expires_at_ms, entry.least_score
