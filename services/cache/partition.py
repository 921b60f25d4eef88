"""The vectors of one partition, in one list while they are few and in many when there are more.

Lists are made for as many vectors as there are at the time. When there are twice as many, or a quarter, they are made
again beside those that serve: `rebuild.py` does the work, and the partition says when it is due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from operator import itemgetter

import numpy as np

from services.cache.ivf_index import Ids, Lists, Rows, Vector

FEW = 10_000  # fewer are read one by one, in half a millisecond
_MOST_LISTS = 4_096
_FOLDED_AT_ONCE = 64  # with 4,096 lists that takes two milliseconds


class Partition:
    """Vectors by id. Used by one thread at a time."""

    def __init__(self, dimension: int):
        self.dimension = dimension
        self._held = [Lists(dimension)]  # all are searched; the last one takes what comes
        self._made_for = 0  # vectors, when lists were last made
        self._removed: list[Ids] = []  # while lists are rebuilt, removals that their builder does not know
        self.rebuilding = False

    def __len__(self) -> int:
        return sum(map(len, self._held))

    @property
    def lists(self) -> int:
        """How many lists its vectors had best be in."""
        return 1 if len(self) < FEW else min(_MOST_LISTS, round(4 * len(self) ** 0.5))

    @property
    def due(self) -> bool:
        """Whether its lists should be rebuilt."""
        grown = len(self) >= max(FEW, 2 * self._made_for)
        shrunk = self._made_for >= FEW and 4 * len(self) <= self._made_for
        return (grown or shrunk) and not self.rebuilding

    def add(self, ids: Ids, rows: Rows) -> None:
        """Add vectors; their ids must not be there, and not have been."""
        self._held[-1].add(ids, rows)

    def remove(self, ids: Ids) -> None:
        """Remove vectors that are there."""
        for lists in self._held:
            lists.remove(ids)
        if self.rebuilding:
            self._removed.append(ids)

    def search(self, vector: Vector, count: int) -> Sequence[tuple[int, float]]:
        """Up to `count` (id, cosine similarity), nearest first."""
        found = [near for lists in self._held for near in lists.search(vector, count)]
        return found if len(self._held) == 1 else nlargest(count, found, key=itemgetter(1))

    def seal(self) -> Sequence[Lists]:
        """Lists to rebuild, which will not grow any more: new vectors go behind them."""
        sealed, self._made_for, self._removed = self._held, len(self), []
        self._held = [*sealed, Lists(self.dimension)]
        return sealed

    def removed(self) -> Ids:
        """The vectors removed since `seal`, or since the last call."""
        removed, self._removed = self._removed, []
        return np.concatenate([np.empty(0, np.int64), *removed])

    def replace(self, sealed: Sequence[Lists], by: Lists) -> None:
        """Serve from lists that hold what those sealed held, but for what was `removed` in time."""
        by.remove(self.removed())
        self._held = [*self._held[len(sealed) :], by]

    def fold(self) -> Iterator[None]:
        """Move what came since `seal` into the lists that replaced those sealed, some at each step."""
        meanwhile, into = self._held
        for ids, rows in meanwhile.blocks(at_once=_FOLDED_AT_ONCE):
            meanwhile.remove(ids)
            into.add(ids, rows)
            yield
        self._held = [into]

    def done(self) -> None:
        """The rebuild has ended: the lists were replaced, or the old ones serve until it is due again."""
        self._removed, self.rebuilding = [], False
