"""The entries held in memory: found by key, least recently used first out, each with a time to live."""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

_OVERHEAD_BYTES = 2_048  # of one entry: its embedding, its row, its bookkeeping


@dataclass(slots=True)
class Entry:
    """One stored answer. Times are Unix time in milliseconds, so that they hold across restarts."""

    key: str
    tenant: str
    partition: bytes
    asked: str
    answer: bytes  # opaque here: an encoded `hedgerow.cache.v1.Answer`
    expires_at_ms: int
    used_at_ms: int

    @property
    def size(self) -> int:
        """In bytes, what `max_bytes` counts."""
        return len(self.asked.encode()) + len(self.answer) + _OVERHEAD_BYTES


class Entries:
    """Entries within `max_entries` and `max_bytes`, ordered by their last use."""

    def __init__(self, max_entries: int, max_bytes: int):
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()  # least recently used first
        self._tenants: defaultdict[str, set[str]] = defaultdict(set)
        self._expiries: list[tuple[int, str]] = []  # a heap; holds stale pairs of entries that were replaced or removed
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, now_ms: int) -> Entry | None:
        """The entry, unless its time is over."""
        entry = self._entries.get(key)
        return entry if entry and entry.expires_at_ms > now_ms else None

    def use(self, entry: Entry, now_ms: int) -> None:
        """Make a held entry the most recently used."""
        entry.used_at_ms = now_ms
        self._entries.move_to_end(entry.key)

    def put(self, entry: Entry) -> list[Entry]:
        """Hold an entry, whose key is not held yet, as the most recently used. Returns those that had to go for it."""
        self._entries[entry.key] = entry
        self._tenants[entry.tenant].add(entry.key)
        self.bytes += entry.size
        self._schedule(entry)
        return list(self._evict())

    def pop(self, key: str) -> Entry | None:
        """Take an entry out, expired or not."""
        entry = self._entries.pop(key, None)
        if entry:
            self.bytes -= entry.size
            keys = self._tenants[entry.tenant]
            keys.discard(key)
            if not keys:
                del self._tenants[entry.tenant]
        return entry

    def pop_tenant(self, tenant: str) -> list[Entry]:
        """Take all entries of a tenant out."""
        keys = list(self._tenants.get(tenant, ()))
        return [entry for key in keys if (entry := self.pop(key))]

    def pop_expired(self, now_ms: int) -> list[Entry]:
        """Take out the entries whose time is over."""
        gone = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            expires_at_ms, key = heapq.heappop(self._expiries)
            entry = self._entries.get(key)
            if entry and entry.expires_at_ms == expires_at_ms:
                self.pop(key)
                gone.append(entry)
        return gone

    def _evict(self) -> Iterator[Entry]:
        while len(self) > self._max_entries or self.bytes > self._max_bytes:
            entry = self.pop(next(iter(self._entries)))
            assert entry
            yield entry

    def _schedule(self, entry: Entry) -> None:
        heapq.heappush(self._expiries, (entry.expires_at_ms, entry.key))
        if len(self._expiries) > 2 * len(self) + 1_000:  # mostly stale
            self._expiries = [(held.expires_at_ms, held.key) for held in self._entries.values()]
            heapq.heapify(self._expiries)
