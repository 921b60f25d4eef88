"""Thresholds that follow verification: wrong hits stay within a share of the lookups, separately for each tenant and
each category of its questions. A threshold that suits chit-chat is wrong for dosages, so no category uses samples of
another. A category may allow fewer wrong hits than the service does, never more.

Of the lookups with a candidate (the nearest stored question that no rule refuses) a share is drawn, whether the
candidate was given or not, and judged. For a threshold t, with C candidates in L lookups and k wrong ones that score t
or more among n samples:

    wrong hits / lookups  ≤  C / L · U(k, n)        U: `bounds.upper`, at any time, with 95%

The threshold is the loosest for which that is within what is allowed. A tighter one has fewer wrong hits, so all that
are tighter are within it, too; and to pass one that is not, the bound of the tightest such would have to be wrong. So
95% holds for the choice, however many thresholds there are. While no threshold is certified, not even one that gives
nothing, the default is in force; where it is known to be beyond what is allowed (`bounds.lower`), the loosest that is
not known to be.

Where old samples leave, the 95% are those of a new choice: the bound is one of the 5,000 samples since then. In a
simulation with 1.05 times what is allowed, 4% of records were certified within 5,000 samples, and 7.5% within 200,000.

Assumed: samples are exchangeable for as long as they count (the last 2,500 to 5,000), missing at random (a judge that
is busy or unclear drops right ones as often as wrong ones), and the judge errs less than what is allowed. A judge that
takes wrong for right hides what it takes; it can loosen no threshold below the floor. Exact hits that gateways served
themselves are not among the lookups, which only makes the bound larger.

Records outlast a restart: a store writes the records that have changed, and with Redis its replicas share them. A
record is about one score, which `made_by` identifies: after a change of the embedder, the rules or the default, earlier
records say nothing, and are dropped.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from services.cache.semantic_match import bounds, rules
from services.cache.semantic_match.record import GRID, Record, Records, ThresholdDecision
from services.cache.semantic_match.traffic import EVERYONE, Traffic

_LEAST = 100  # samples, before a threshold is certified
_LOG_STEP = 0.005  # a threshold that becomes tighter by this at once is logged again
_WATCHED = 50  # samples from one look for drift to the next
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
    """Per tenant and category, from 0 to 1, or `NEVER`. `max_wrong`: wrong hits allowed, as a share of lookups.
    `made_by`: what made the scores; empty where nothing that is verified is kept."""

    def __init__(self, default: float, max_wrong: float, made_by: str = ""):
        self.default, self.made_by, self._max_wrong, self.alarms = default, made_by, max_wrong, 0
        self._records = Records()
        self._everyone = Record({1.0: ThresholdDecision(default)})

    def of(self, traffic: Traffic, max_wrong: float | None = None) -> float:
        """The threshold in force, where lookups allow for so many wrong hits; None: for as many as the last one."""
        if max_wrong is not None:
            return self._decision(traffic, max_wrong).threshold
        record = self._records.get(traffic)
        return record.threshold if record else self.default

    def for_lookup(self, traffic: Traffic, max_wrong: float = 1.0) -> float:
        """The threshold in force for lookups that allow `max_wrong` wrong hits, at most the service's own share.
        Lookups that allow another share have another threshold."""
        decision = self._decision(traffic, max_wrong)
        if record := self._records.get(traffic):
            record.max_wrong = self._allowed(max_wrong)
        return decision.threshold

    def by_category(self, tenant: str) -> Mapping[str, Record]:
        """The records of a tenant's categories."""
        return {category: record for category, record in self._records.of(tenant).items() if category}

    def look_up(self, traffic: Traffic, candidate: bool) -> None:
        """There was a lookup, with or without a candidate."""
        for record in (self._record(traffic), self._everyone):
            record.look_up(candidate)

    def verify(self, traffic: Traffic, score: float, accepted: bool, right: bool) -> None:
        """A candidate that was drawn is judged."""
        record = self._record(traffic)
        for each in (record, self._everyone):
            each.verify(score, accepted, right)
        self._decide(traffic, record)
        if record.count % _WATCHED == 0:
            self._watch(traffic, record)

    @property
    def drifting(self) -> int:
        """How many records' newer verdicts are unlike the older ones."""
        return sum(bool(record.drift) for _, record in self._records)

    def drift(self, tenant: str) -> str:
        """The change in a tenant's questions of no category, for people; mostly nothing."""
        record = self._records.get(Traffic(tenant))
        return record.drift if record else ""

    def news(self) -> Iterator[tuple[Traffic, Record]]:
        """The records that are worth to be written, `EVERYONE`'s among them."""
        if self.made_by:
            records = (*self._records, (EVERYONE, self._everyone))
            yield from [(traffic, record) for traffic, record in records if record.has_news]

    def resume(self, traffic: Traffic, row: Sequence[object], since: Record | None = None) -> bool:
        """Go on from a row as it is kept. `since`: only where this is the record still, and with what it has learned
        since it was taken. False, and nothing else, where the row is none: a warning says so."""
        try:
            shared = Record.of(row)
        except ValueError as error:
            _log.warning("the verification record of tenant %r is damaged, and is dropped: %s", traffic.name, error)
            return False
        if since is None or since is self._held(traffic):
            record = self._everyone if traffic == EVERYONE else self._record(traffic)
            if since is None:
                record.max_wrong = self._allowed(shared.max_wrong)
                record.decisions = {record.max_wrong: shared.decision}
            record.replace(shared)
            if traffic != EVERYONE:
                self._decide(traffic, record)
        return True

    def forget(self, tenant: str = EVERYONE.tenant) -> None:
        """The tenant was removed; or nothing that is known counts any more."""
        if tenant == EVERYONE.tenant:
            self._records.clear()
            self._everyone = Record({1.0: ThresholdDecision(self.default)})
        self._records.forget(tenant)

    @property
    def measured(self) -> Measured:
        """The measurements of all tenants together."""
        record = self._everyone
        count, wrong, share = record.count, record.wrong_hits, record.share
        if not count:
            return Measured(0, 0, 0.0, 0.0, 1.0)
        low, high = bounds.lower(wrong, count), bounds.upper(wrong, count)
        return Measured(count, wrong, share * wrong / count, share * low, share * high)

    def _held(self, traffic: Traffic) -> Record | None:
        return self._everyone if traffic == EVERYONE else self._records.get(traffic)

    def _record(self, traffic: Traffic) -> Record:
        return self._records.use(traffic, self.default)

    def _allowed(self, max_wrong: float) -> float:
        """The share of wrong hits that lookups allow, 1 where it is not less than what the service does."""
        return max_wrong if max_wrong < self._max_wrong else 1.0

    def _decision(self, traffic: Traffic, max_wrong: float) -> ThresholdDecision:
        """The threshold in force for lookups that allow for so much."""
        record, allowed = self._records.get(traffic), self._allowed(max_wrong)
        if record is None:
            return ThresholdDecision(self.default)
        if allowed not in record.decisions:
            self._decide_for(allowed, traffic, record)
        return record.decisions[allowed]

    def _decide(self, traffic: Traffic, record: Record) -> None:
        for allowed in list(record.decisions):
            self._decide_for(allowed, traffic, record)

    def _decide_for(self, allowed: float, traffic: Traffic, record: Record) -> None:
        max_wrong, default = min(allowed, self._max_wrong), self.default
        before = record.decisions.get(allowed, ThresholdDecision(default))
        threshold, certified, beyond = self._decided(record, max_wrong)
        if max_wrong < self._max_wrong:  # fewer wrong hits never mean a looser threshold
            threshold = max(threshold, self._decided(record, self._max_wrong)[0])
        withdrawn = before.certified and before.threshold <= default
        alarmed = beyond or (threshold > default and (before.alarmed or withdrawn))
        record.decide(allowed, ThresholdDecision(threshold, certified, alarmed))
        if alarmed and (not before.alarmed or threshold >= before.threshold + _LOG_STEP):
            self.alarms += not before.alarmed
            text = "tenant %s: by what was verified, more than %g of its lookups may be wrong hits at %g; it has %g now"
            _log.warning(text, traffic.name, max_wrong, default, threshold)

    def _watch(self, traffic: Traffic, record: Record) -> None:
        before, record.drift = record.drift, record.changed()
        if record.drift and not before:
            text = "tenant %s: the newer half of %d verdicts is unlike the older one: %s; its threshold may not hold"
            _log.warning(text, traffic.name, record.count, record.drift)

    def _decided(self, record: Record, max_wrong: float) -> tuple[float, bool, bool]:
        """The threshold by what was verified, whether it is certified, and whether the default is known to be beyond
        what is allowed."""
        default, allowed = self.default, max_wrong / record.share
        count, wrong, level = record.count, record.wrong(), bisect_left(GRID, default)
        beyond = bounds.is_above(allowed, wrong[level], count)
        if count >= _LEAST and bounds.is_below(allowed, 0, count):  # fewer are wrong the tighter it is
            loosest = bisect_left(wrong, True, key=lambda hits: bounds.is_below(allowed, hits, count))
            return GRID[loosest], True, beyond
        if not beyond:
            return default, False, False
        tighter = zip(GRID[level:], wrong[level:], strict=True)
        return next(t for t, k in tighter if not bounds.is_above(allowed, k, count)), False, True


def made_by(default: float, engine: str) -> str:
    """A digest of everything that decides a pair's score and its candidates, and of the default threshold: records with
    one digest say nothing about scores with another."""
    return sha256(f"{engine}\n{rules.RULES_VERSION}\n{default!r}".encode()).hexdigest()[:16]
