"""Thresholds that follow what is verified: each tenant's wrong hits stay within a share of its lookups.

Of the lookups with a candidate (the nearest stored question that no difference refuses) a share is drawn, whether the
candidate was given or not, and judged. For a threshold t, with C candidates in L lookups and k wrong ones that score t
or more among n samples:

    wrong hits / lookups  ≤  C / L · U(k, n)        U: `bounds.upper`, at any time, with 95%

The threshold is the loosest for which that is within what is allowed. A tighter one has fewer wrong hits, so all that
are tighter are within it, too; and to pass one that is not, the bound of the tightest such would have to be wrong. So
95% holds for the choice, however many thresholds there are. While no threshold is certified, not even one that gives
nothing, the default is in force; where it is known to be beyond what is allowed (`bounds.lower`), the loosest that is
not known to be.

A pair that raises doubts (`gates.py`) is a candidate, too. What they cost is learnt (`penalties.py`), and what they
leave of its score counts here; until a threshold is certified they refuse. Each time that it is learnt anew the 95%
are those of a new choice.

Assumed: samples are exchangeable for as long as they count (the last 2,500 to 5,000), missing at random (a judge that
is busy or unclear drops right ones as often as wrong ones), and the judge errs less than what is allowed. A judge that
takes wrong for right hides what it takes; it can loosen no threshold below the floor. Exact hits that gateways served
themselves are not among the lookups, which only makes the bound larger.

What was verified outlasts a restart: a store writes the records that have news, and with Redis its replicas share them.
A record is of one score, and `made_by` says of which: where the embedder, the verdict or the default is another one,
what was verified before says nothing, and is forgotten.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from services.cache.verdict import bounds
from services.cache.verdict.gates import DOUBTS
from services.cache.verdict.penalties import Penalties
from services.cache.verdict.record import GRID, Record

_LEAST = 100  # samples, before a threshold is certified
TENANTS = 1_000  # remembered
_TOLD = 0.005  # by how much tighter it becomes at once, to be told of again
EVERYONE = ""  # stands for all tenants together
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """Wrong hits as a share of all lookups: an estimate, and bounds with 95% each. Without samples, 0 to 1."""

    samples: int
    wrong: int  # hits among them
    estimate: float
    lower: float
    upper: float


class Thresholds:
    """Per tenant, from 0 to 1, or `NEVER`. `max_wrong`: wrong hits allowed, as a share of lookups. `made_by`: what made
    the scores; empty where nothing that is verified is kept."""

    def __init__(self, default: float, max_wrong: float, made_by: str = ""):
        self.default, self.made_by, self._max_wrong, self.alarms = default, made_by, max_wrong, 0
        self._tenants: OrderedDict[str, Record] = OrderedDict()  # the least recently used first
        self._everyone = Record(default)

    def of(self, tenant: str) -> float:
        """The threshold in force."""
        record = self._tenants.get(tenant)
        return record.threshold if record else self.default

    def look_up(self, tenant: str, candidate: bool) -> None:
        """There was a lookup, with or without a candidate."""
        for record in (self._record(tenant), self._everyone):
            record.look_up(candidate)

    def scored(self, tenant: str, key: str, score: float, doubts: Collection[str]) -> float:
        """What doubts leave of the score of the entry `key`: all of it without any, 0 where they refuse. No threshold
        but a certified one has them do anything else."""
        record = self._tenants.get(tenant)
        if not doubts:
            return score
        return record.scored(key, score, doubts) if record and record.certified else 0.0

    def verify(
        self, tenant: str, score: float, accepted: bool, right: bool, key: str = "", doubts: Collection[str] = ()
    ) -> None:
        """A candidate that was drawn is judged: the entry `key`, and the doubts that it raises."""
        record = self._record(tenant)
        for each in (record, self._everyone):
            each.verify(key, score, doubts, accepted, right)
        self._decide(tenant, record)

    def due(self, tenant: str) -> Record | None:
        """The record of a tenant of whose verdicts something is to be learnt now."""
        record = self._tenants.get(tenant)
        return record if record and record.due() else None

    def learn(self, tenant: str, record: Record, learnt: list[Penalties]) -> None:
        """Have doubts cost so much in each half of a tenant's entries."""
        record.learn(learnt)
        self._decide(tenant, record)
        costs = ", ".join(f"{doubt} {one:.2f} and {two:.2f}" for doubt, one, two in zip(DOUBTS, *learnt, strict=True))
        text = "tenant %s: learnt of %d verdicts what a doubt takes from artanh(cosine), in each half: %s"
        _log.info(text, tenant, record.learnt_of, costs)

    def news(self) -> Iterator[tuple[str, Record]]:
        """The records that are worth to be written, by tenant, `EVERYONE` among them."""
        if self.made_by:
            records = (*self._tenants.items(), (EVERYONE, self._everyone))
            yield from [(tenant, record) for tenant, record in records if record.has_news]

    def resume(self, tenant: str, row: Sequence[object], since: Record | None = None) -> bool:
        """Go on from a row as it is kept. `since`: only where this is the tenant's record still, and with what it has
        learned since it was taken. False, and nothing else, where the row is none: a warning says so."""
        try:
            shared = Record.of(row)
        except ValueError as error:
            _log.warning("what was verified of tenant %r is damaged, and forgotten: %s", tenant, error)
            return False
        if since is None or since is self._held(tenant):
            record = self._everyone if tenant == EVERYONE else self._record(tenant)
            if since is None:
                record.threshold, record.certified, record.alarmed = shared.threshold, shared.certified, shared.alarmed
            record.replace(shared)
            if tenant != EVERYONE:
                self._decide(tenant, record)
        return True

    def forget(self, tenant: str = EVERYONE) -> None:
        """The tenant was removed; or nothing that is known counts any more."""
        if tenant == EVERYONE:
            self._tenants.clear()
            self._everyone = Record(self.default)
        self._tenants.pop(tenant, None)

    @property
    def measured(self) -> Measured:
        """Of all tenants together."""
        record = self._everyone
        count, wrong, share = record.count, record.wrong_hits, record.share
        if not count:
            return Measured(0, 0, 0.0, 0.0, 1.0)
        low, high = bounds.lower(wrong, count), bounds.upper(wrong, count)
        return Measured(count, wrong, share * wrong / count, share * low, share * high)

    def _held(self, tenant: str) -> Record | None:
        return self._everyone if tenant == EVERYONE else self._tenants.get(tenant)

    def _record(self, tenant: str) -> Record:
        record = self._tenants.get(tenant)
        if record is None:
            record = self._tenants[tenant] = Record(self.default)
            if len(self._tenants) > TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        return record

    def _decide(self, tenant: str, record: Record) -> None:
        allowed, count, plainly = self._max_wrong / record.share, record.count, record.plainly_wrong()
        alarmed, withdrawn = record.alarmed, record.certified and record.threshold <= self.default
        before, level = record.threshold, bisect_left(GRID, self.default)
        beyond = bounds.is_above(allowed, plainly[level], count)
        record.certified = count >= _LEAST and bounds.is_below(allowed, 0, count)
        if record.certified:  # fewer are wrong the tighter it is
            loosest = bisect_left(record.wrong(), True, key=lambda wrong: bounds.is_below(allowed, wrong, count))
            record.threshold = GRID[loosest]
        elif beyond:
            tighter = zip(GRID[level:], plainly[level:], strict=True)
            record.threshold = next(t for t, k in tighter if not bounds.is_above(allowed, k, count))
        else:
            record.threshold = self.default
        record.alarmed = beyond or (record.threshold > self.default and (alarmed or withdrawn))
        if record.alarmed and (not alarmed or record.threshold >= before + _TOLD):
            self.alarms += not alarmed
            text = "tenant %s: by what was verified, more than %g of its lookups may be wrong hits at %g; it has %g now"
            _log.warning(text, tenant, self._max_wrong, self.default, record.threshold)
