"""A clock that stands still until it is told to move."""

from __future__ import annotations


class PausedClock:
    """Call it for the time in seconds; `advance` moves it."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
