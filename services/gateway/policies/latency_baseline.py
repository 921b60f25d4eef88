"""How long a backend usually takes to its first sign of life, and so what its silence says.

A call that ended before anything came, because its time was over or because another was faster, says nothing of the
backend where it was given less than the backend usually needs. Where it was given that much, the silence is a failure
like any other: who only counted errors would call a backend well that accepts everything and answers nothing.

Only calls that were answered teach what is usual, else silence would become the usual. Until there are enough of them
the configured expectation stands in.
"""

from __future__ import annotations

import time

from services.runtime.deadline import Clock
from services.runtime.digest import WindowedDigest

_WINDOW_S = 600.0
_QUANTILE = 0.95
MIN_ANSWERS = 20  # of fewer, the slowest would be the 95th of a hundred


class LatencyBaseline:
    """Of one backend, or of all replicas of one model. `expected_s` may be set anew by whoever knows better."""

    def __init__(self, expected_s: float, clock: Clock = time.monotonic):
        self.expected_s = expected_s
        self._answers = WindowedDigest(_WINDOW_S, clock)

    def came(self, after_s: float) -> None:
        """A call was answered: its first text, or its reply, came `after_s` seconds after its beginning."""
        self._answers.add(after_s)

    def quantile_s(self, quantile: float) -> float | None:
        """Of the answers of the last ten minutes; None where they are too few to tell."""
        return self._answers.quantile(quantile) if self._answers.count >= MIN_ANSWERS else None

    def needs_s(self) -> float:
        """What 95 of 100 recent calls needed at most, else what is expected."""
        return self.quantile_s(_QUANTILE) or self.expected_s

    def tells(self, silent_s: float) -> bool:
        """Whether so much silence is a failure."""
        return silent_s >= self.needs_s()
