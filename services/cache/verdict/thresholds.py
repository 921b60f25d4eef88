"""Thresholds that follow what is verified: each tenant's wrong hits stay within a share of its lookups.

Of the lookups with a candidate (the nearest stored question that nothing speaks against) a share is drawn, whether the
candidate was given or not, and judged. For a threshold t, with C candidates in L lookups and k wrong ones that score t
or more among n samples:

    wrong hits / lookups  ≤  C / L · U(k, n)        U: `bounds.upper`, at any time, with 95%

The threshold is the loosest for which that is within what is allowed. A tighter one has fewer wrong hits, so all that
are tighter are within it, too; and to pass one that is not, the bound of the tightest such would have to be wrong. So
95% holds for the choice, however many thresholds there are. While no threshold is certified, not even one that gives
nothing, the default is in force; where it is known to be beyond what is allowed (`bounds.lower`), the loosest that is
not known to be.

Assumed: samples are exchangeable for as long as they count (the last 2,500 to 5,000), missing at random (a judge that
is busy or unclear drops right ones as often as wrong ones), and the judge errs less than what is allowed. A judge that
takes wrong for right hides what it takes; it can loosen no threshold below the floor. Exact hits that gateways served
themselves are not among the lookups, which only makes the bound larger.

Kept in this process alone: after a restart the default is in force until enough is verified again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import accumulate

from services.cache.verdict import bounds
from services.cache.verdict.tightening import NEVER

FLOOR = 0.75  # who scores less is no candidate
_GRID = [*(round(FLOOR + 0.005 * step, 3) for step in range(51)), NEVER]
_SAMPLES = 5_000  # of a tenant; then the older half leaves, so that each bound is one of a sample that only grows
_LEAST = 100  # samples, before a threshold is certified
_LOOKUPS = (20_000, 1_000)  # that the share of candidates is about, in the mean: whichever has the larger one
_TENANTS = 1_000  # remembered
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """Wrong hits as a share of all lookups: an estimate, and bounds with 95% each. Without samples, 0 to 1."""

    samples: int
    wrong: int  # hits among them
    estimate: float
    lower: float
    upper: float


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
class _Record:
    """Of one tenant, or of all together."""

    threshold: float
    certified: bool = False
    alarmed: bool = False  # the default is beyond what is allowed, or was certified and is not any more
    _shares: list[_Share] = field(default_factory=lambda: [_Share(1 - 1 / lookups) for lookups in _LOOKUPS])
    _samples: bytearray = field(default_factory=bytearray)  # the level a score reaches, times 4; 2: wrong; 1: given
    _wrong: list[int] = field(default_factory=lambda: [0] * (len(_GRID) + 1))  # samples by the level they reach

    def look_up(self, candidate: bool) -> None:
        for share in self._shares:
            share.look_up(candidate)

    def verify(self, score: float, accepted: bool, right: bool) -> None:
        level = bisect_right(_GRID, score)
        self._samples.append(4 * level + 2 * (not right) + accepted)
        self._wrong[level] += not right
        if len(self._samples) > _SAMPLES:
            older = len(self._samples) // 2
            for each in self._samples[:older]:
                self._wrong[each >> 2] -= each >> 1 & 1
            del self._samples[:older]

    @property
    def count(self) -> int:
        return len(self._samples)

    @property
    def wrong_hits(self) -> int:
        return sum(each & 3 == 3 for each in self._samples)

    @property
    def share(self) -> float:
        """Of lookups, with a candidate; 1 where it is not known."""
        return max(share.value for share in self._shares) or 1.0

    def wrong(self) -> list[int]:
        """For each threshold of the grid, how many wrong candidates would be given."""
        return list(accumulate(self._wrong[:0:-1]))[::-1]


class Thresholds:
    """Per tenant, from 0 to 1, or `NEVER`. `max_wrong`: wrong hits allowed, as a share of lookups."""

    def __init__(self, default: float, max_wrong: float):
        self.default, self._max_wrong, self.alarms = default, max_wrong, 0
        self._tenants: OrderedDict[str, _Record] = OrderedDict()  # the least recently used first
        self._everyone = _Record(default)

    def of(self, tenant: str) -> float:
        """The threshold in force."""
        record = self._tenants.get(tenant)
        return record.threshold if record else self.default

    def look_up(self, tenant: str, candidate: bool) -> None:
        """There was a lookup, with or without a candidate."""
        for record in (self._record(tenant), self._everyone):
            record.look_up(candidate)

    def verify(self, tenant: str, score: float, accepted: bool, right: bool) -> None:
        """A candidate that was drawn is judged."""
        record = self._record(tenant)
        for each in (record, self._everyone):
            each.verify(score, accepted, right)
        self._decide(tenant, record)

    @property
    def measured(self) -> Measured:
        """Of all tenants together."""
        record = self._everyone
        count, wrong, share = record.count, record.wrong_hits, record.share
        if not count:
            return Measured(0, 0, 0.0, 0.0, 1.0)
        low, high = bounds.lower(wrong, count), bounds.upper(wrong, count)
        return Measured(count, wrong, share * wrong / count, share * low, share * high)

    def _record(self, tenant: str) -> _Record:
        record = self._tenants.get(tenant)
        if record is None:
            record = self._tenants[tenant] = _Record(self.default)
            if len(self._tenants) > _TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        return record

    def _decide(self, tenant: str, record: _Record) -> None:
        allowed, wrong, count = self._max_wrong / record.share, record.wrong(), record.count
        alarmed, withdrawn = record.alarmed, record.certified and record.threshold <= self.default
        before, level = record.threshold, bisect_left(_GRID, self.default)
        beyond = bounds.is_above(allowed, wrong[level], count)
        record.certified = count >= _LEAST and bounds.is_below(allowed, 0, count)
        if record.certified:
            record.threshold = next(t for t, k in zip(_GRID, wrong, strict=True) if bounds.is_below(allowed, k, count))
        elif beyond:
            tighter = zip(_GRID[level:], wrong[level:], strict=True)
            record.threshold = next(t for t, k in tighter if not bounds.is_above(allowed, k, count))
        else:
            record.threshold = self.default
        record.alarmed = beyond or (record.threshold > self.default and (alarmed or withdrawn))
        if record.alarmed and (not alarmed or record.threshold > before):
            self.alarms += not alarmed
            text = "tenant %s: by what was verified, more than %g of its lookups may be wrong hits at %g; it has %g now"
            _log.warning(text, tenant, self._max_wrong, self.default, record.threshold)
