"""The entries held in memory: found by key, each with a time to live.

An entry whose lifetime is over has lapsed: it is no hit any more, but is kept for `stale_ms`, in case no model can
answer. Lapsed entries are evicted first; then the least valuable entries (`greedy_dual`) of the tenant that holds most.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from services.cache import greedy_dual
from services.cache.greedy_dual import GreedyDual
from services.runtime.policy.fair_lru import FairLru

if TYPE_CHECKING:
    from services.cache.ivf_index import Vector

# One entry's resident memory beside its texts: embedding, index, bookkeeping. Measured for the most expensive case, an
# entry that is the only one of its tenant and its partition.
OVERHEAD_BYTES = 3_328
_LOOKS = 500  # at entries in one call of `expire`: 3 ms


@dataclass(slots=True)
class Entry:
    """One stored answer. Times are Unix time in milliseconds, so that they hold across restarts.

    `size`: in bytes of memory, as `max_bytes` counts them; computed once.
    """

    key: str
    tenant: str
    partition: bytes
    asked: bytes  # UTF-8: as text it could have four bytes for each character, and more after SQLite has seen it
    answer: bytes  # opaque here: an encoded `hedgerow.cache.v1.Answer`
    expires_at_ms: int
    used_at_ms: int
    lapsed: bool = False  # its lifetime was over when it was last checked
    least_score: float = 0.0  # a similar question with a lower score is no hit of this entry; never falls
    uses: int = 0  # hits, and the store as the first use
    priority: float = 0.0  # among the tenant's entries, see `greedy_dual`; 0 before the first use
    cost: float = field(init=False, default=0.0)  # of generating the answer again; set when the entry is held
    size: int = field(init=False)

    def __post_init__(self) -> None:
        parts = (self.key, self.tenant, self.partition, self.asked, self.answer)
        self.size = sum(map(sys.getsizeof, parts)) + OVERHEAD_BYTES


class Entries:
    """Entries within `max_entries` and `max_bytes`, shared fairly by their tenants; kept for `stale_ms` after their
    time."""

    def __init__(self, max_entries: int, max_bytes: int, stale_ms: int = 0):
        self.max_entries, self.max_bytes, self._stale_ms = max_entries, max_bytes, stale_ms
        self._entries: FairLru[str, Entry] = FairLru(max_bytes, max_entries, GreedyDual)
        self._lapsed: OrderedDict[str, None] = OrderedDict()  # keys, the first to lapse first
        self._due: list[tuple[int, str]] = []  # a heap of when to look at an entry; holds pairs of some that are gone

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """All entries held, expired or not."""
        return iter(self._entries)

    @property
    def bytes(self) -> int:
        return self._entries.bytes

    def held(self, key: str) -> Entry | None:
        """The entry, expired or not."""
        return self._entries.get(key)

    def get(self, key: str, now_ms: int) -> Entry | None:
        """The entry, unless its time is over."""
        entry = self._entries.get(key)
        return entry if entry and entry.expires_at_ms > now_ms else None

    def stale(self, key: str, now_ms: int) -> Entry | None:
        """The entry, where its time is over and it is still kept."""
        entry = self._entries.get(key)
        return entry if entry and entry.expires_at_ms <= now_ms < entry.expires_at_ms + self._stale_ms else None

    def use(self, entry: Entry, now_ms: int) -> None:
        """A held entry was used."""
        entry.used_at_ms = now_ms
        self._entries.use(entry.key)

    def put(self, entry: Entry) -> list[Entry]:
        """Hold an entry, whose key is not held yet. Returns those that had to go for it."""
        entry.cost = greedy_dual.cost(entry.answer)
        self._entries.put(entry.key, entry)
        self._schedule(entry.expires_at_ms, entry.key)
        evicted = list(self._evict())
        if not entry.priority and self._entries.get(entry.key):
            self._entries.use(entry.key)
        return evicted

    def pop(self, key: str) -> Entry | None:
        """Take an entry out, expired or not."""
        self._lapsed.pop(key, None)
        return self._entries.pop(key)

    def pop_tenant(self, tenant: str) -> list[Entry]:
        """Take all entries of a tenant out."""
        return [entry for key in self._entries.keys_of(tenant) if (entry := self.pop(key))]

    def expire(self, now_ms: int) -> tuple[list[Entry], list[Entry]]:
        """(those that have lapsed, those that were kept long enough after that and are now out). A call looks at a
        limited number; after it more may be `overdue`."""
        lapsed, gone = [], []
        for _ in range(_LOOKS):
            if not self.overdue(now_ms):
                break
            entry = self._entries.get(heapq.heappop(self._due)[1])
            if entry is None or entry.expires_at_ms > now_ms:  # gone or replaced since
                continue
            if not entry.lapsed:
                self._lapse(entry)
                lapsed.append(entry)
            if entry.expires_at_ms + self._stale_ms <= now_ms:
                self.pop(entry.key)
                gone.append(entry)
        return lapsed, gone

    def overdue(self, now_ms: int) -> bool:
        """Whether the time of an entry is over that `expire` has not looked at."""
        return bool(self._due) and self._due[0][0] <= now_ms

    def _evict(self) -> Iterator[Entry]:
        while self._entries.full:
            entry = self.pop(next(iter(self._lapsed), "") or self._entries.next_to_evict())
            assert entry
            yield entry

    def _lapse(self, entry: Entry) -> None:
        entry.lapsed = True
        self._lapsed[entry.key] = None
        self._schedule(entry.expires_at_ms + self._stale_ms, entry.key)

    def _schedule(self, at_ms: int, key: str) -> None:
        heapq.heappush(self._due, (at_ms, key))
        if len(self._due) > 2 * len(self) + 1_000:  # mostly of entries that are gone
            self._due = [(self._due_ms(held), held.key) for held in self._entries]
            heapq.heapify(self._due)

    def _due_ms(self, entry: Entry) -> int:
        return entry.expires_at_ms + self._stale_ms * entry.lapsed


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def packed(vector: Vector | None) -> bytes:
    """A vector as stores keep it: 32-bit floats, little-endian. None: no bytes."""
    return b"" if vector is None else vector.astype("<f4").tobytes()


def unpacked(kept: bytes) -> Vector:
    """The vector of `packed`. An exact-only cache reads none, and needs no NumPy for it."""
    import numpy as np

    vector: Vector = np.frombuffer(kept, "<f4")
    return vector
