"""The table of models: the catalogue, with live latency in place of expectations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from services.router.config import ModelSettings
from services.runtime.deadline import Clock
from services.runtime.digest import WindowedDigest
from services.runtime.routing import Latency, Model, Tier

Weighted = Iterable[tuple[float, float]]  # a time, and the number of answers with it
_ROUNDING = 1e-9


class Outcome(IntEnum):
    """How a generation ended. Numbers as in the contract."""

    OK = 1
    BUDGET = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Observation:
    """A gateway's observation of a generation. `ttft_ms` is None if no token came."""

    model: str
    ttft_ms: float | None
    total_ms: float
    outcome: Outcome


class _Row:
    def __init__(self, settings: ModelSettings, window_s: float, clock: Clock):
        self._settings = settings
        self._ttft, self._whole, self._cut, self._failures = (WindowedDigest(window_s, clock) for _ in range(4))

    def observe(self, seen: Observation, age_s: float) -> None:
        self._failures.add(float(seen.outcome is Outcome.FAILED), age_s)
        if seen.ttft_ms is not None:
            self._ttft.add(seen.ttft_ms, age_s)
        match seen.outcome:
            case Outcome.OK:
                self._whole.add(seen.total_ms, age_s)
            case Outcome.BUDGET:  # it would have taken longer; how long is unknown
                self._cut.add(seen.total_ms, age_s)

    def model(self) -> Model:
        settings = self._settings
        return Model(
            settings.name,
            Tier[settings.tier.upper()],
            settings.context_tokens,
            settings.prompt_usd_per_mtok,
            settings.completion_usd_per_mtok,
            ttft=self._ttft.latency() or _expected(settings.expected_ttft_ms),
            total=self._total(),
            failure_rate=self._failures.mean(),
            sees=settings.sees,
            cached_prompt_usd_per_mtok=settings.cached_prompt_usd_per_mtok,
            cache_write_usd_per_mtok=settings.cache_write_usd_per_mtok,
            identity=settings.identity,
        )

    def _total(self) -> Latency:
        expected, cut = self._settings.expected_total_ms, self._cut.values()
        if not cut:
            return self._whole.latency() or _expected(expected)
        p50, p95, p99 = percentiles(self._whole.values(), cut, (0.5, 0.95, 0.99), expected)
        return Latency(p50, p95, p99, self._whole.count + self._cut.count)


class Table:
    """All models. `version` grows with each call of `observe` that changed something."""

    def __init__(self, catalogue: Iterable[ModelSettings], window_s: float, clock: Clock = time.monotonic):
        self._rows = {settings.name: _Row(settings, window_s, clock) for settings in catalogue}
        self._window_s = window_s
        self.version = 1

    def observe(self, observations: Iterable[Observation], age_s: float = 0.0) -> int:
        """Take in observations that are `age_s` seconds old; returns how many were of models in the catalogue. Those
        that are older than the window are dropped."""
        taken = 0
        if age_s > self._window_s:
            return taken
        for seen in observations:
            row = self._rows.get(seen.model)
            if row:
                row.observe(seen, age_s)
                taken += 1
        self.version += bool(taken)
        return taken

    def models(self) -> list[Model]:
        return [row.model() for row in self._rows.values()]


def _expected(milliseconds: float) -> Latency:
    return Latency(milliseconds, milliseconds, milliseconds)


def percentiles(whole: Weighted, cut: Weighted, shares: Sequence[float], expected: float) -> list[float]:
    """The percentiles of all answers at `shares` (0 to 1, in rising order), where `cut` are right-censored: an answer
    that its budget has cut takes longer than its time so far. An answer that was cut after 980 ms counts among those
    that take longer than 970 ms, and has no weight for times above 980 ms.
    Source: the product-limit estimator, Kaplan and Meier, 1958: https://doi.org/10.1080/01621459.1958.10501452

    If too many answers were cut to estimate
    one, the `expected` time counts as one answer's; if the cut answers exclude that too, the percentile is infinite."""
    whole, cut = list(whole), list(cut)
    known = _percentiles(whole, cut, shares)
    return known if known[-1] < float("inf") else _percentiles([*whole, (expected, 1)], cut, shares)


def _percentiles(whole: Weighted, cut: Weighted, shares: Sequence[float]) -> list[float]:
    # At equal times complete answers come first: an answer that was cut at that time takes longer.
    times = sorted([(each, False, count) for each, count in whole] + [(each, True, count) for each, count in cut])
    running, longer, found = sum(count for _, _, count in times), 1.0, list[float]()
    for at, is_cut, count in times:
        if not is_cut:
            longer *= 1 - count / running
            while len(found) < len(shares) and longer <= 1 - shares[len(found)] + _ROUNDING:
                found.append(at)
        running -= count
    return found + [float("inf")] * (len(shares) - len(found))
