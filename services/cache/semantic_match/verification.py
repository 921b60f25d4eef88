"""Which lookups are verified."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from services.cache.semantic_match.record import FLOOR
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic


@dataclass(frozen=True, slots=True)
class VerificationSample:
    """A candidate to be judged. `answer` is as its entry has it."""

    key: str
    score: float
    accepted: bool
    asked: str
    answer: bytes


class Verification:
    """Draws `share` of the lookups that have a candidate. `toss` gives numbers from 0 up to 1."""

    def __init__(self, thresholds: Thresholds, share: float = 0.0, toss: Callable[[], float] = random.random):
        self.thresholds, self._toss = thresholds, toss
        self._share = share if thresholds.default < 1 else 0.0  # without semantic hits there is nothing to verify

    @property
    def on(self) -> bool:
        """Whether anything is drawn, and thresholds follow."""
        return self._share > 0

    def least(self, threshold: float) -> float:
        """The least score of a candidate."""
        return min(threshold, FLOOR) if self.on else threshold

    def look_up(self, traffic: Traffic, candidate: bool) -> None:
        """There was a lookup, with or without a candidate."""
        if self.on:
            self.thresholds.look_up(traffic, candidate)

    def draws(self) -> bool:
        """Whether a candidate is drawn: before the decision whether it is given."""
        return self._toss() < self._share
