"""Pauses before a process that has ended is started again, on behalf of the services' workers and of `hedgerow up`."""

from __future__ import annotations

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
STEADY_S = 30.0  # a process that ran so long has started well


class Pauses:
    """The pauses of one process. Each is twice the previous one, up to a bound."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def after(self, lived_s: float) -> float:
        """The pause in seconds after a process that ran for `lived_s`; short again after one that was steady."""
        pause_s = FIRST_PAUSE_S if lived_s >= STEADY_S else self._next_s
        self._next_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return pause_s
