"""The table of models: the catalogue, with live latency in place of expectations."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from services.router import censored
from services.router.config import ModelSettings
from services.runtime.deadline import Clock
from services.runtime.digest import WindowedDigest
from services.runtime.routing import Latency, Model, Tier


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
        p50, p95, p99 = censored.percentiles(self._whole.values(), cut, (0.5, 0.95, 0.99), expected)
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
