"""Samples lookups for verification."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from services.cache.semantic_match.record import FLOOR
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic


@dataclass(frozen=True, slots=True)
class VerificationSample:
    """A candidate to judge. `answer` is that of its entry."""

    key: str
    score: float
    accepted: bool
    asked: str
    answer: bytes


class Verification:
    """Samples `share` of the lookups that have a candidate. `toss` returns random numbers from 0 up to 1."""

    def __init__(self, thresholds: Thresholds, share: float = 0.0, toss: Callable[[], float] = random.random):
        self.thresholds, self._toss = thresholds, toss
        self._share = share if thresholds.default < 1 else 0.0  # without semantic hits there is nothing to verify

    @property
    def on(self) -> bool:
        """Whether lookups are sampled, and thresholds adapt."""
        return self._share > 0

    def least(self, threshold: float) -> float:
        """The least score of a candidate."""
        return min(threshold, FLOOR) if self.on else threshold

    def look_up(self, traffic: Traffic, candidate: bool) -> None:
        """Count a lookup, with or without a candidate."""
        if self.on:
            self.thresholds.look_up(traffic, candidate)

    def draws(self) -> bool:
        """Whether to sample a candidate. This is decided before the decision whether it is a hit."""
        return self._toss() < self._share
