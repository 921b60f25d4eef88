"""What was removed when, so that no store brings back what was removed after its answer was begun.

A store says up to which position its answer knows of changes, and a removal after that overtakes it. Positions are
those of `redis_scripts`: they only grow. When there are too many marks the oldest goes and becomes the floor: who knew
less than that counts as overtaken, because nobody can say any more that it was not.
"""

from __future__ import annotations

from services.cache.changes import Delete, DeleteTenant, Removing

_MAX_MARKS = 10_000


class Removals:
    """The last `max_marks` removals by their position."""

    def __init__(self, floor: int = 0, max_marks: int = _MAX_MARKS):
        self._floor, self._max_marks = floor, max_marks
        self._marks: dict[Removing, int] = {}  # the oldest first

    def note(self, removal: Removing, position: int) -> None:
        """A removal, no older than those noted before."""
        self._marks.pop(removal, None)
        self._marks[removal] = position
        if len(self._marks) > self._max_marks:
            self.forget(self._marks.pop(next(iter(self._marks))))

    def forget(self, position: int) -> None:
        """Of what was removed up to a position not all is known."""
        self._floor = max(self._floor, position)

    def since(self, key: str, tenant: str, known: int) -> bool:
        """Whether a key or its tenant was removed after `known`, or may have been."""
        marks = (self._marks.get(Delete(key), 0), self._marks.get(DeleteTenant(tenant), 0))
        return max(self._floor, *marks) > known
