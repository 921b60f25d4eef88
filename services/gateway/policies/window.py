"""Counts of the calls of the last seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_SLICES = 10


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
        self._slice_s = window_s / _SLICES
        self._slices: deque[CallCounts] = deque(maxlen=_SLICES)

    def current(self, now: float) -> CallCounts:
        """The counts of the current slice."""
        number = int(now / self._slice_s)
        if not self._slices or self._slices[-1].slice != number:
            self._slices.append(CallCounts(number))
        return self._slices[-1]

    def total(self, now: float) -> CallCounts:
        """The counts of all slices in the window."""
        oldest = int(now / self._slice_s) - _SLICES
        counted = [counts for counts in self._slices if counts.slice > oldest]
        return CallCounts(
            calls=sum(counts.calls for counts in counted),
            failed=sum(counts.failed for counts in counted),
            slow=sum(counts.slow for counts in counted),
        )

    def clear(self) -> None:
        self._slices.clear()
