"""Percentiles and counts over a sliding window of time.

Percentiles: a ring of DDSketches (Masson et al., VLDB 2019: https://arxiv.org/abs/1908.10693), one for each slice
of the window; a percentile merges them. Relative error 1%, whatever the number of values.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from ddsketch import DDSketch

from services.runtime.deadline import Clock
from services.runtime.routing import Latency

SLICES = 6
_RELATIVE_ERROR = 0.01
# A quantile that is asked for at each request is merged again after this many new values or seconds.
_MANY_NEW = 16
_OLD_S = 0.25
_COUNT_SLICES = 10


class WindowedDigest:
    """Values of the last `window_s` seconds, to a sixth of that."""

    def __init__(self, window_s: float, clock: Clock = time.monotonic):
        self._slice_s = window_s / SLICES
        self._clock = clock
        self._slices: deque[tuple[int, DDSketch]] = deque(maxlen=SLICES)
        self._recent = DDSketch(_RELATIVE_ERROR)  # the window as it was at `_recent_at`
        self._recent_at = clock()
        self._new = 0  # values since then
        self._quantiles: dict[float, float | None] = {}  # of `_recent`

    @property
    def count(self) -> int:
        """The number of values in the window."""
        oldest = self._slice(self._clock()) - SLICES
        return sum(int(sketch.count) for number, sketch in self._slices if number > oldest)

    def add(self, value: float, age_s: float = 0.0) -> None:
        """Add a value that is `age_s` seconds old. Values older than the window are ignored."""
        number = self._slice(self._clock() - age_s)
        if not self._slices or self._slices[-1][0] < number:
            self._slices.append((number, DDSketch(_RELATIVE_ERROR)))
        newest, sketch = self._slices[-1]
        if newest != number:
            sketch = self._earlier(number)
        sketch.add(value)
        self._new += 1

    def quantile(self, quantile: float) -> float | None:
        """The value that a share of `quantile` (0 to 1) does not exceed, or None when the window is empty.

        Made for asking often: it takes about a microsecond, and may lack the newest 16 values or 0.25 s.
        """
        now = self._clock()
        if self._is_stale(now):
            self._recent, self._recent_at, self._new = self._merged(), now, 0
            self._quantiles.clear()
        if quantile not in self._quantiles:
            value = self._recent.get_quantile_value(quantile)
            self._quantiles[quantile] = None if value is None else float(value)
        return self._quantiles[quantile]

    def latency(self) -> Latency | None:
        """The window's percentiles of values in milliseconds; None if it is empty."""
        merged = self._merged()
        if not merged.count:
            return None
        p50, p95, p99 = (float(merged.get_quantile_value(quantile)) for quantile in (0.5, 0.95, 0.99))
        return Latency(p50, p95, p99, int(merged.count))

    def values(self) -> list[tuple[float, float]]:
        """The values of the window, to 1% and at least 0, with their counts."""
        merged = self._merged()
        store, value = merged._store, merged._mapping.value  # the library shows neither
        counted = [(float(value(key)), float(count)) for key, count in enumerate(store.bins, store.offset) if count]
        return [(0.0, float(merged._zero_count)), *counted] if merged._zero_count else counted

    def mean(self) -> float:
        """The window's mean; 0 when it is empty."""
        merged = self._merged()
        return float(merged.sum / merged.count) if merged.count else 0.0

    def _is_stale(self, now: float) -> bool:
        if self._slice(now) != self._slice(self._recent_at):
            return True
        # Few values: each new one changes much.
        many = min(_MANY_NEW, max(1, int(self._recent.count)))
        return self._new >= many or (self._new > 0 and now - self._recent_at >= _OLD_S)

    def _merged(self) -> DDSketch:
        merged, oldest = DDSketch(_RELATIVE_ERROR), self._slice(self._clock()) - SLICES
        for number, sketch in self._slices:
            if number > oldest:
                merged.merge(sketch)
        return merged

    def _earlier(self, number: int) -> DDSketch:
        """The slice of that number, which is not the newest."""
        slices = dict(self._slices)
        sketch = slices.setdefault(number, DDSketch(_RELATIVE_ERROR))
        self._slices = deque(sorted(slices.items()), maxlen=SLICES)  # one too many: the oldest goes
        return sketch

    def _slice(self, at: float) -> int:
        return int(at / self._slice_s)


@dataclass(slots=True)
class CallCounts:
    """The counts of one slice of time, or of several."""

    slice: int = 0
    calls: int = 0
    failed: int = 0
    slow: int = 0


class CountWindow:
    """Counts of the last seconds, give or take one tenth."""

    def __init__(self, window_s: float):
        self._slice_s = window_s / _COUNT_SLICES
        self._slices: deque[CallCounts] = deque(maxlen=_COUNT_SLICES)

    def current(self, now: float) -> CallCounts:
        """The counts of the current slice."""
        number = int(now / self._slice_s)
        if not self._slices or self._slices[-1].slice != number:
            self._slices.append(CallCounts(number))
        return self._slices[-1]

    def total(self, now: float) -> CallCounts:
        """The counts of all slices in the window."""
        oldest = int(now / self._slice_s) - _COUNT_SLICES
        counted = [counts for counts in self._slices if counts.slice > oldest]
        return CallCounts(
            calls=sum(counts.calls for counts in counted),
            failed=sum(counts.failed for counts in counted),
            slow=sum(counts.slow for counts in counted),
        )

    def clear(self) -> None:
        self._slices.clear()
