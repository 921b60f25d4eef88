"""Percentiles of a sliding window of time.

A ring of DDSketches (Masson et al., VLDB 2019: https://arxiv.org/abs/1908.10693), one for each slice of the window; a
percentile merges them. Relative error 1%, whatever the number of values.
"""

from __future__ import annotations

import time
from collections import deque

from ddsketch import DDSketch

from services.runtime.deadline import Clock
from services.runtime.routing import Latency

SLICES = 6
_RELATIVE_ERROR = 0.01


class WindowedDigest:
    """Values of the last `window_s` seconds, give or take one sixth of it."""

    def __init__(self, window_s: float, clock: Clock = time.monotonic):
        self._slice_s = window_s / SLICES
        self._clock = clock
        self._slices: deque[tuple[int, DDSketch]] = deque(maxlen=SLICES)

    def add(self, value: float) -> None:
        now = self._slice()
        if not self._slices or self._slices[-1][0] != now:
            self._slices.append((now, DDSketch(_RELATIVE_ERROR)))
        self._slices[-1][1].add(value)

    def latency(self) -> Latency | None:
        """The window's percentiles, or None when it is empty. Values are taken for milliseconds."""
        merged = self._merged()
        if not merged.count:
            return None
        p50, p95, p99 = (float(merged.get_quantile_value(quantile)) for quantile in (0.5, 0.95, 0.99))
        return Latency(p50, p95, p99, int(merged.count))

    def mean(self) -> float:
        """The window's mean; 0 when it is empty."""
        merged = self._merged()
        return float(merged.sum / merged.count) if merged.count else 0.0

    def _merged(self) -> DDSketch:
        merged, oldest = DDSketch(_RELATIVE_ERROR), self._slice() - SLICES
        for number, sketch in self._slices:
            if number > oldest:
                merged.merge(sketch)
        return merged

    def _slice(self) -> int:
        return int(self._clock() / self._slice_s)
