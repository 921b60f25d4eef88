"""What is known of one tenant's candidates: how many of its lookups have one, and what was said of those that were
judged. Plain numbers, 20 KB at the most."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from services.cache.verdict import penalties
from services.cache.verdict.gates import DOUBTS
from services.cache.verdict.penalties import REFUSES, Array, Penalties
from services.cache.verdict.tightening import NEVER

FLOOR = 0.75  # who scores less is no candidate
GRID = (*(round(FLOOR + 0.001 * step, 3) for step in range(251)), NEVER)  # of thresholds
_SAMPLES = 5_000  # of a tenant; then the older half leaves, so that each bound is one of a sample that only grows
_LOOKUPS = (20_000, 1_000)  # that the share of candidates is about, in the mean: whichever has the larger one
_FIRST, _AGAIN = 100, 1.5  # samples when doubts are learnt of first, and by how much there are more the next time
# A sample: the level its score reaches, the doubts raised, its half, whether it was wrong, whether it was given.
_GIVEN, _WRONG, _HALF, _DOUBTS, _LEVEL = 0, 1, 2, 3, 3 + len(DOUBTS)
_ALL_DOUBTS = (1 << len(DOUBTS)) - 1


@dataclass(slots=True)
class _Share:
    """Of the last lookups, those with a candidate: counts that fade."""

    fade: float
    lookups: float = 0.0
    candidates: float = 0.0

    def look_up(self, candidate: bool) -> None:
        self.lookups, self.candidates = self.lookups * self.fade + 1, self.candidates * self.fade + candidate

    @property
    def value(self) -> float:
        return self.candidates / self.lookups if self.lookups else 0.0


@dataclass(slots=True)
class Record:
    """Of one tenant, or of all together.

    Entries are in one of two halves, by their keys. What doubts cost in one half is learnt from the verdicts on the
    other, so no verdict speaks for what was fitted to it (cross-fitting: Chernozhukov et al., arXiv 1608.00060).
    """

    threshold: float
    certified: bool = False
    alarmed: bool = False  # the default is beyond what is allowed, or was certified and is not any more
    learnt: list[Penalties] = field(default_factory=lambda: [REFUSES, REFUSES])  # for each half
    learnt_of: int = 0  # samples, the last time
    _shares: list[_Share] = field(default_factory=lambda: [_Share(1 - 1 / lookups) for lookups in _LOOKUPS])
    _samples: array[int] = field(default_factory=lambda: array("H"))
    _wrong: list[int] = field(default_factory=lambda: [0] * (len(GRID) + 1))  # by the level that doubts leave
    _plainly_wrong: list[int] = field(default_factory=lambda: [0] * (len(GRID) + 1))  # those without a doubt

    def look_up(self, candidate: bool) -> None:
        for share in self._shares:
            share.look_up(candidate)

    def verify(self, key: str, score: float, doubts: Collection[str], accepted: bool, right: bool) -> None:
        raised = sum(1 << number for number, doubt in enumerate(DOUBTS) if doubt in doubts)
        flags = accepted << _GIVEN | (not right) << _WRONG | half(key) << _HALF | raised << _DOUBTS
        self._samples.append(bisect_right(GRID, score) << _LEVEL | flags)
        if len(self._samples) > _SAMPLES:
            del self._samples[: len(self._samples) // 2]
            self._count()
        elif not right:
            self._add(self._samples[-1])

    def scored(self, key: str, score: float, doubts: Collection[str]) -> float:
        """What doubts leave of a candidate's score; 0 where they refuse it."""
        costs = dict(zip(DOUBTS, self.learnt[half(key)], strict=True))
        return _left(bisect_right(GRID, score), math.fsum(costs[doubt] for doubt in doubts)) if doubts else score

    def due(self) -> bool:
        """Whether what doubts cost should be learnt anew. Says so once."""
        count = len(self._samples)
        due = count >= _FIRST and not self.learnt_of <= count < _AGAIN * self.learnt_of
        if due:
            self.learnt_of = count
        return due

    def lesson(self, of: int) -> tuple[Array, Array, Array]:
        """Cosines, doubts and whether it was right, of the samples of a half: what `penalties.fitted` takes."""
        samples = np.array(self._samples, np.int64)
        samples = samples[(samples >> _HALF & 1) == of]
        cosines = np.array([0.0, *GRID])[samples >> _LEVEL]
        doubts = (samples[:, None] >> (_DOUBTS + np.arange(len(DOUBTS)))) & 1
        return cosines, doubts.astype(float), (1.0 - (samples >> _WRONG & 1)).astype(float)

    def learn(self, learnt: list[Penalties]) -> None:
        self.learnt = learnt
        self._count()

    @property
    def count(self) -> int:
        return len(self._samples)

    @property
    def wrong_hits(self) -> int:
        return sum(each >> _GIVEN & each >> _WRONG & 1 for each in self._samples)

    @property
    def share(self) -> float:
        """Of lookups, with a candidate; 1 where it is not known."""
        return max(share.value for share in self._shares) or 1.0

    def wrong(self) -> list[int]:
        """For each threshold of the grid, how many wrong candidates would be given."""
        return _at_least(self._wrong)

    def plainly_wrong(self) -> list[int]:
        """The same where every doubt refuses."""
        return _at_least(self._plainly_wrong)

    def _count(self) -> None:
        self._wrong, self._plainly_wrong = [0] * (len(GRID) + 1), [0] * (len(GRID) + 1)
        for each in self._samples:
            if each >> _WRONG & 1:
                self._add(each)

    def _add(self, sample: int) -> None:
        """A wrong one."""
        level, raised = sample >> _LEVEL, sample >> _DOUBTS & _ALL_DOUBTS
        self._plainly_wrong[level] += not raised
        if raised:
            costs = self.learnt[sample >> _HALF & 1]
            level = bisect_right(GRID, _left(level, math.fsum(c for n, c in enumerate(costs) if raised >> n & 1)))
        self._wrong[level] += 1


def half(key: str) -> int:
    """Which half an entry is in, 0 or 1."""
    return int(key[-1:] or "0", 16) & 1


def _left(level: int, cost: float) -> float:
    """Of the least score of a level, so that a candidate and its sample are the same."""
    return penalties.left(GRID[level - 1], cost) if level and GRID[level - 1] <= 1 else 0.0


def _at_least(counts: list[int]) -> list[int]:
    return list(accumulate(counts[:0:-1]))[::-1]
