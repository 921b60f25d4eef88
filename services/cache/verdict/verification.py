"""Which lookups are verified, and what comes of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass

from services.cache.verdict import penalties
from services.cache.verdict.record import FLOOR
from services.cache.verdict.thresholds import Thresholds
from services.cache.verdict.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Sample:
    """A candidate to be judged. `score`: before `doubts` took anything from it. `answer` is as its entry has it."""

    key: str
    score: float
    accepted: bool
    asked: str
    answer: bytes
    doubts: tuple[str, ...] = ()


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
        """What a candidate has to score."""
        return min(threshold, FLOOR) if self.on else threshold

    def look_up(self, traffic: Traffic, candidate: bool) -> None:
        """There was a lookup, with or without a candidate."""
        if self.on:
            self.thresholds.look_up(traffic, candidate)

    def draws(self) -> bool:
        """Whether a candidate is drawn: before anybody asks whether it is given."""
        return self._toss() < self._share

    async def verify(
        self, traffic: Traffic, score: float, accepted: bool, right: bool, key: str = "", doubts: Collection[str] = ()
    ) -> None:
        """A candidate that was drawn is judged. Now and then what doubts cost is learnt of it, on another thread."""
        self.thresholds.verify(traffic, score, accepted, right, key, doubts)
        if record := self.thresholds.due(traffic):
            lessons = [record.lesson(of=other) for other in (1, 0)]  # each half learns from the other one
            learnt = await asyncio.to_thread(lambda: [penalties.fitted(*lesson) for lesson in lessons])
            self.thresholds.learn(traffic, record, learnt)
