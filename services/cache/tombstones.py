"""Remembers removals, so that no answer that was begun before its removal is stored after it.

A removal leaves a tombstone with its sequence number. A store request has the epoch of its answer: the last sequence
number that was known when the answer was begun. A later tombstone of its key or its tenant is a conflict. Beyond a
limit the oldest tombstone is dropped, and its number becomes the watermark: a store with an epoch below it counts as a
conflict, too, because it may be one.
"""

from __future__ import annotations

from dataclasses import dataclass

_MAX_TOMBSTONES = 10_000


@dataclass(frozen=True, slots=True)
class Removal:
    """A removal: of one entry, or of all entries of a tenant; with both, of one entry if it is the tenant's."""

    key: str = ""
    tenant: str = ""

    def covers(self, key: str, tenant: str) -> bool:
        """Whether it removes an entry."""
        return self.key in ("", key) and self.tenant in ("", tenant)


class Tombstones:
    """The last `max_tombstones` removals. Those up to `watermark` are unknown."""

    def __init__(self, watermark: int = 0, max_tombstones: int = _MAX_TOMBSTONES):
        self._watermark, self._max = watermark, max_tombstones
        self._sequence: dict[Removal, int] = {}  # the oldest first

    def add(self, removal: Removal, sequence: int) -> None:
        """Add a removal, no older than those added before."""
        self._sequence.pop(removal, None)
        self._sequence[removal] = sequence
        if len(self._sequence) > self._max:
            self._watermark = self._sequence.pop(next(iter(self._sequence)))

    def conflict(self, key: str, tenant: str, epoch: int) -> bool:
        """Whether a key or its tenant was removed after `epoch`, or may have been."""
        removals = (Removal(key=key), Removal(tenant=tenant), Removal(key, tenant))
        return max(self._watermark, *(self._sequence.get(each, 0) for each in removals)) > epoch
