"""The verification record of one tenant and category: how many lookups have a candidate, and the judge's decisions on
the sampled candidates. Plain numbers, 20 KB at the most.

Records can be added: each keeps the counts since it was last written separately, and replicas that share a record add
those counts to it. Samples are appended, and a fading count is linear in its earlier value.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from services.cache.semantic_match.traffic import Traffic

NEVER = 2.0  # above every score: no hit of what is merely alike
FLOOR = 0.75  # a question that scores less is no candidate
GRID = (*(round(FLOOR + 0.001 * step, 3) for step in range(251)), NEVER)  # of thresholds
RECORDS = 1_000  # remembered, of 20 KB each at the most
SAMPLES = 5_000  # of a record; then the older half leaves, so that each bound is one of a sample that only grows
SAMPLE_BYTES = 2
DECISIONS = 8  # of a record: what categories of different gateways' settings allow for
FADES = tuple(1 - 1 / lookups for lookups in (20_000, 1_000))  # lookups that the share of candidates is about
_GIVEN, _WRONG, _LEVEL = 0, 1, 2  # bits of a sample: whether it was given, was wrong, and the level its score reaches
_COLUMNS = 9
_MANY_LOOKUPS = 100  # are news without a sample
Row = tuple[bytes, float, float, float, float, float, bool, bool, float]  # as it is kept: see `Record.row`


@dataclass(slots=True)
class SampleCounts:
    """`samples`: a number of 16 bits each. `faded`: for each of `FADES` the lookups, and those of them with a
    candidate."""

    samples: array[int] = field(default_factory=lambda: array("H"))
    lookups: int = 0
    faded: list[float] = field(default_factory=lambda: [0.0] * (2 * len(FADES)))

    def look_up(self, candidate: bool) -> None:
        self.lookups += 1
        for place, fade in enumerate(FADES):
            self.faded[2 * place] = self.faded[2 * place] * fade + 1
            self.faded[2 * place + 1] = self.faded[2 * place + 1] * fade + candidate

    def add(self, later: SampleCounts) -> None:
        """The counts that came after this."""
        self.samples += later.samples
        self.lookups += later.lookups
        for place, kept in enumerate(later.kept):
            self.faded[2 * place] = self.faded[2 * place] * kept + later.faded[2 * place]
            self.faded[2 * place + 1] = self.faded[2 * place + 1] * kept + later.faded[2 * place + 1]

    @property
    def kept(self) -> list[float]:
        """The share that is left, after these lookups, of earlier counts."""
        return [fade**self.lookups for fade in FADES]

    def trim(self) -> bool:
        """Let the older half go where there are too many samples. Returns whether there were."""
        too_many = len(self.samples) > SAMPLES
        if too_many:
            del self.samples[: len(self.samples) // 2]
        return too_many


@dataclass(frozen=True, slots=True)
class ThresholdDecision:
    """`threshold` is the one in force, and `alarmed`: the service's own is beyond what is allowed, or was certified and
    is not any more."""

    threshold: float
    certified: bool = False
    alarmed: bool = False


@dataclass(slots=True)
class Record:
    """Of one tenant and category, or of all together. `max_wrong`: what the last lookup allowed for, 1 where that was
    not less than what the service allows. `decisions`: by what lookups allowed for, because gateways may differ in it;
    that for `max_wrong` is among them, and it alone is kept."""

    decisions: dict[float, ThresholdDecision]
    max_wrong: float = 1.0
    drift: str = ""  # the last result of `changed`; not stored
    _all: SampleCounts = field(default_factory=SampleCounts)
    _news: SampleCounts = field(default_factory=SampleCounts)  # of them, what came since `take`
    _wrong: list[int] = field(default_factory=lambda: [0] * (len(GRID) + 1))  # by level

    @classmethod
    def of(cls, row: Sequence[object]) -> Record:
        """The record of a `row`, with nothing new. Raises ValueError for a row that is none."""
        if len(row) != _COLUMNS:
            raise ValueError(f"{_COLUMNS} columns, got {len(row)}")
        samples, threshold, certified, alarmed = _samples(row[0]), *map(_number, row[5:8])
        faded = [_number(each) for each in row[1:5]]
        if any(candidates > lookups for lookups, candidates in zip(faded[::2], faded[1::2], strict=True)):
            raise ValueError("more candidates than lookups")
        max_wrong = _number(row[8] or 1) or 1.0  # older versions kept none
        counts = SampleCounts(samples, 0, faded)
        decision = ThresholdDecision(min(threshold, NEVER), bool(certified), bool(alarmed))
        record = cls({max_wrong: decision}, max_wrong, _all=counts)
        record._count()
        return record

    @property
    def decision(self) -> ThresholdDecision:
        """The decision for lookups that allow for as much as the last one."""
        return self.decisions[self.max_wrong]

    @property
    def threshold(self) -> float:
        return self.decision.threshold

    @property
    def row(self) -> Row:
        """The stored form: samples, lookups and candidates of each of `FADES`, the decisions, and `max_wrong`."""
        (a, b, c, d), samples, decision = self._all.faded, self._all.samples.tobytes(), self.decision
        return samples, a, b, c, d, decision.threshold, decision.certified, decision.alarmed, self.max_wrong

    def decide(self, max_wrong: float, decision: ThresholdDecision) -> None:
        """The decision in force for lookups that allow for so much. Of too many such the one that was decided first
        goes."""
        self.decisions[max_wrong] = decision
        if len(self.decisions) > DECISIONS:
            del self.decisions[next(each for each in self.decisions if each not in (max_wrong, self.max_wrong))]

    def look_up(self, candidate: bool) -> None:
        self._all.look_up(candidate)
        self._news.look_up(candidate)

    def verify(self, score: float, accepted: bool, right: bool) -> None:
        level = bisect_right(GRID, score)
        for counts in (self._all, self._news):
            counts.samples.append(level << _LEVEL | (not right) << _WRONG | accepted << _GIVEN)
        self._news.trim()
        if self._all.trim():
            self._count()
        else:
            self._wrong[level] += not right

    def changed(self) -> str:
        """The difference between the newer half of the samples and the older one, for people; mostly nothing."""
        import numpy as np  # which an exact-only cache, without samples, does not have

        from services.cache.semantic_match import drift

        samples, levels = np.array(self._all.samples, np.int64), np.array([0.0, *GRID])  # the least score of each
        return drift.drifted(levels[samples >> _LEVEL], (samples >> _WRONG & 1).astype(bool), self.threshold)

    @property
    def has_news(self) -> bool:
        """Whether it is worth to be written."""
        return bool(self._news.samples) or self._news.lookups >= _MANY_LOOKUPS

    def take(self) -> SampleCounts:
        """The counts since the last call."""
        news, self._news = self._news, SampleCounts()
        return news

    def replace(self, shared: Record) -> None:
        """Go on from what is shared, of which this record's own part is all but what came since `take`."""
        self._all = shared._all
        self._all.add(self._news)
        self._all.trim()
        self._count()

    @property
    def count(self) -> int:
        return len(self._all.samples)

    @property
    def wrong_hits(self) -> int:
        return sum(each >> _GIVEN & each >> _WRONG & 1 for each in self._all.samples)

    @property
    def share(self) -> float:
        """Of lookups, with a candidate; 1 where it is not known. Of the last 20,000 or 1,000, in the mean: whichever
        is the larger one."""
        faded = self._all.faded
        pairs = zip(faded[::2], faded[1::2], strict=True)
        return max(candidates / lookups if lookups else 0.0 for lookups, candidates in pairs) or 1.0

    def wrong(self) -> list[int]:
        """The number of wrong candidates that each threshold of the grid would accept."""
        return list(accumulate(self._wrong[:0:-1]))[::-1]

    def _count(self) -> None:
        self._wrong = [0] * (len(GRID) + 1)
        for each, times in Counter(self._all.samples).items():
            self._wrong[each >> _LEVEL] += times * (each >> _WRONG & 1)


def _samples(value: object) -> array[int]:
    if not isinstance(value, bytes) or len(value) % SAMPLE_BYTES:
        raise ValueError(f"samples: an even number of bytes, got {type(value).__name__}")
    samples = array("H", value)
    if len(samples) > SAMPLES or max(samples, default=0) >> _LEVEL > len(GRID):
        raise ValueError(f"{len(samples)} samples, of which some are none, or more than {SAMPLES}")
    return samples


def _number(value: object) -> float:
    """A number of at least 0 from SQLite or Redis."""
    if not isinstance(value, int | float | bytes) or not 0 <= float(value) < math.inf:
        raise ValueError(f"a number of at least 0, got {type(value).__name__}")
    return float(value)


class Records:
    """The remembered records by tenant and category, the least recently used first.

    When there are too many, the tenant that has most of them loses the one it used least recently: a tenant with many
    categories takes nothing from one that has few. Ties go to the tenant that was there least recently, which
    `fair_lru` would not do, and with a record for each tenant all are ties.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, Record]] = OrderedDict()
        self._count = 0

    def __iter__(self) -> Iterator[tuple[Traffic, Record]]:
        for tenant, records in list(self._tenants.items()):  # lists: scrapes of the metrics have a thread of their own
            for category, record in list(records.items()):
                yield Traffic(tenant, category), record

    def get(self, traffic: Traffic) -> Record | None:
        return self.of(traffic.tenant).get(traffic.category)

    def of(self, tenant: str) -> Mapping[str, Record]:
        """A tenant's, by category."""
        return self._tenants.get(tenant, {})

    def use(self, traffic: Traffic, threshold: float) -> Record:
        """The record, which is used now; where there is none, a new one with a threshold to begin with."""
        tenant, category = traffic
        records = self._tenants.setdefault(tenant, OrderedDict())
        record = records.get(category)
        if record is None:
            record = records[category] = Record({1.0: ThresholdDecision(threshold)})
            self._count += 1
        records.move_to_end(category)
        self._tenants.move_to_end(tenant)
        if self._count > RECORDS:
            self._make_room()
        return record

    def forget(self, tenant: str) -> None:
        """Remove all records of a tenant."""
        self._count -= len(self._tenants.pop(tenant, {}))

    def clear(self) -> None:
        self._tenants.clear()
        self._count = 0

    def _make_room(self) -> None:
        tenant, records = max(self._tenants.items(), key=lambda each: len(each[1]))  # the first of several
        records.popitem(last=False)
        self._count -= 1
        if not records:
            del self._tenants[tenant]
