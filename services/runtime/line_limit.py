"""A limit of the log: what goes wrong many times a second has one line a minute."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass

from services.runtime.deadline import Clock

EVERY_S = 60.0


@dataclass(slots=True)
class _Line:
    at: float
    left_out: int = 0  # lines since


class LineLimit:
    """Limits log lines: each kind has one line a minute."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._last: dict[Hashable, _Line] = {}

    def take(self, kind: Hashable = None) -> int | None:
        """How many lines were left out since the last one of this kind; None where this one is left out, too."""
        now, last = self._clock(), self._last.get(kind)
        if last and now < last.at + EVERY_S:
            last.left_out += 1
            return None
        self._last[kind] = _Line(now)
        return last.left_out if last else 0
