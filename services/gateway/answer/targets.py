"""Latency targets: what each stage should take, and how often it takes longer.

A target at p95 may be missed by 5 requests of 100; so a single miss is noted at the highest percentile it is beyond,
and the counters tell the shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from prometheus_client import Counter

from services.gateway.settings.budgets import TargetSettings

_MEASURED = Counter("hedgerow_target_measured", "Times that have a target.", ["what"])
_MISSED = Counter("hedgerow_target_missed", "Times beyond a target.", ["what", "percentile"])
_measured, _missed = cache(_MEASURED.labels), cache(_MISSED.labels)
_PERCENTILES = ("p99", "p95", "p50")


class Targets:
    """Targets by stage; `ttft`, `usable` and `total` are the whole answer's."""

    def __init__(self, settings: Mapping[str, TargetSettings] | None = None):
        self._targets = {
            name: [(percentile, target) for percentile in _PERCENTILES if (target := _target(stage, percentile))]
            for name, stage in (settings or {}).items()
        }

    def __bool__(self) -> bool:
        return bool(self._targets)

    def missed(self, spent_ms: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
        """(stage, percentile, words) for each stage beyond its targets, with the highest percentile it is beyond."""
        for name in spent_ms.keys() & self._targets.keys():
            _measured(name).inc()
            beyond = [(percentile, target) for percentile, target in self._targets[name] if spent_ms[name] > target]
            for percentile, _ in beyond:
                _missed(name, percentile).inc()
            if beyond:
                percentile, target = beyond[0]
                yield name, percentile, f"{spent_ms[name]:.0f} ms, {percentile} target {target:.0f} ms"


def _target(stage: TargetSettings, percentile: str) -> float:
    return float(getattr(stage, f"{percentile}_ms"))
