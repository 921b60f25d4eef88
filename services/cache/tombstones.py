"""Removals with their times, so that no store brings back an answer that was begun before its removal.

A removal leaves a tombstone with its sequence number. A store brings the epoch of its answer, the sequence number that
was the last one known when it was begun; a later tombstone of its key or its tenant is a conflict. When there are too
many tombstones the oldest one goes, and its number becomes the watermark: a store whose epoch is below it is a conflict
too, because it may be one.
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
        """Whether it is about an entry."""
        return self.key in ("", key) and self.tenant in ("", tenant)


class Tombstones:
    """Of the last `max_tombstones` removals. Nothing is known of those up to `watermark`."""

    def __init__(self, watermark: int = 0, max_tombstones: int = _MAX_TOMBSTONES):
        self._watermark, self._max = watermark, max_tombstones
        self._sequence: dict[Removal, int] = {}  # the oldest first

    def add(self, removal: Removal, sequence: int) -> None:
        """A removal, no older than those added before."""
        self._sequence.pop(removal, None)
        self._sequence[removal] = sequence
        if len(self._sequence) > self._max:
            self._watermark = self._sequence.pop(next(iter(self._sequence)))

    def conflict(self, key: str, tenant: str, epoch: int) -> bool:
        """Whether a key or its tenant was removed after `epoch`, or may have been."""
        removals = (Removal(key=key), Removal(tenant=tenant), Removal(key, tenant))
        return max(self._watermark, *(self._sequence.get(each, 0) for each in removals)) > epoch
