"""What was verified of one tenant: its samples, and how many of its lookups have a candidate.

It can be added up: of what came since it was last written a record keeps an account of its own, so that replicas which
share a record add theirs to it. Samples are appended, and a count that fades is linear in what it was.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from services.cache.verdict.tightening import NEVER

FLOOR = 0.75  # who scores less is no candidate
GRID = [*(round(FLOOR + 0.005 * step, 3) for step in range(51)), NEVER]
SAMPLES = 5_000  # of a tenant; then the older half leaves, so that each bound is one of a sample that only grows
FADES = tuple(1 - 1 / lookups for lookups in (20_000, 1_000))  # lookups that the share of candidates is about
_COLUMNS = 8
_MANY_LOOKUPS = 100  # are news by themselves
Row = tuple[bytes, float, float, float, float, float, bool, bool]  # as it is kept: see `Record.row`


@dataclass(slots=True)
class Counts:
    """`samples`: a byte each, the level that its score reaches, times 4; and 2: wrong; and 1: given. `faded`: for each
    of `FADES` the lookups, and those of them with a candidate."""

    samples: bytearray = field(default_factory=bytearray)
    lookups: int = 0
    faded: list[float] = field(default_factory=lambda: [0.0] * (2 * len(FADES)))

    def look_up(self, candidate: bool) -> None:
        self.lookups += 1
        for place, fade in enumerate(FADES):
            self.faded[2 * place] = self.faded[2 * place] * fade + 1
            self.faded[2 * place + 1] = self.faded[2 * place + 1] * fade + candidate

    def add(self, later: Counts) -> None:
        """What came after this."""
        self.samples += later.samples
        self.lookups += later.lookups
        for place, kept in enumerate(later.kept):
            self.faded[2 * place] = self.faded[2 * place] * kept + later.faded[2 * place]
            self.faded[2 * place + 1] = self.faded[2 * place + 1] * kept + later.faded[2 * place + 1]

    @property
    def kept(self) -> list[float]:
        """What is left, after these lookups, of what was counted before them."""
        return [fade**self.lookups for fade in FADES]

    def trim(self) -> bytes:
        """Let the older half go where there are too many samples. Returns those."""
        if len(self.samples) <= SAMPLES:
            return b""
        older = bytes(self.samples[: len(self.samples) // 2])
        del self.samples[: len(older)]
        return older


@dataclass(slots=True)
class Record:
    """Of one tenant, or of all together. `threshold` is the one in force, and `alarmed`: the service's own is beyond
    what is allowed, or was certified and is not any more."""

    threshold: float
    certified: bool = False
    alarmed: bool = False
    _all: Counts = field(default_factory=Counts)
    _news: Counts = field(default_factory=Counts)  # of them, what came since `take`
    _wrong: list[int] = field(default_factory=lambda: [0] * (len(GRID) + 1))  # samples by the level they reach

    @classmethod
    def of(cls, row: Sequence[object]) -> Record:
        """What `row` was, with nothing new. Raises ValueError for what is none."""
        if len(row) != _COLUMNS:
            raise ValueError(f"{_COLUMNS} columns, got {len(row)}")
        samples, threshold, certified, alarmed = bytearray(_bytes(row[0])), *map(_number, row[5:8])
        faded = [_number(each) for each in row[1:5]]
        if len(samples) > SAMPLES or any(each >> 2 > len(GRID) for each in samples):
            raise ValueError(f"{len(samples)} samples, of which some are none, or more than {SAMPLES}")
        if any(candidates > lookups for lookups, candidates in zip(faded[::2], faded[1::2], strict=True)):
            raise ValueError("more candidates than lookups")
        record = cls(min(threshold, NEVER), bool(certified), bool(alarmed), Counts(samples, 0, faded))
        record._recount()
        return record

    @property
    def row(self) -> Row:
        """As it is kept: samples, lookups and candidates of each of `FADES`, and what came of them."""
        (a, b, c, d), all_ = self._all.faded, self._all
        return bytes(all_.samples), a, b, c, d, self.threshold, self.certified, self.alarmed

    def look_up(self, candidate: bool) -> None:
        self._all.look_up(candidate)
        self._news.look_up(candidate)

    def verify(self, score: float, accepted: bool, right: bool) -> None:
        level = bisect_right(GRID, score)
        for counts in (self._all, self._news):
            counts.samples.append(4 * level + 2 * (not right) + accepted)
        self._wrong[level] += not right
        self._news.trim()
        for each in self._all.trim():
            self._wrong[each >> 2] -= each >> 1 & 1

    @property
    def has_news(self) -> bool:
        """Whether it is worth to be written."""
        return bool(self._news.samples) or self._news.lookups >= _MANY_LOOKUPS

    def take(self) -> Counts:
        """What came since the last time."""
        news, self._news = self._news, Counts()
        return news

    def replace(self, shared: Record) -> None:
        """Go on from what is shared, of which this record's own part is all but what came since `take`."""
        self._all = shared._all
        self._all.add(self._news)
        self._all.trim()
        self._recount()

    @property
    def count(self) -> int:
        return len(self._all.samples)

    @property
    def wrong_hits(self) -> int:
        return sum(each & 3 == 3 for each in self._all.samples)

    @property
    def share(self) -> float:
        """Of lookups, with a candidate; 1 where it is not known. Of the last 20,000 or 1,000, in the mean: whichever
        is the larger one."""
        faded = self._all.faded
        pairs = zip(faded[::2], faded[1::2], strict=True)
        return max(candidates / lookups if lookups else 0.0 for lookups, candidates in pairs) or 1.0

    def wrong(self) -> list[int]:
        """For each threshold of the grid, how many wrong candidates would be given."""
        return list(accumulate(self._wrong[:0:-1]))[::-1]

    def _recount(self) -> None:
        self._wrong = [0] * (len(GRID) + 1)
        for each in self._all.samples:
            self._wrong[each >> 2] += each >> 1 & 1


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"samples: bytes, got {type(value).__name__}")
    return value


def _number(value: object) -> float:
    """At least 0, as it is in SQLite or in Redis."""
    if not isinstance(value, int | float | bytes) or not 0 <= float(value) < math.inf:
        raise ValueError(f"a number of at least 0, got {type(value).__name__}")
    return float(value)
