"""A simulated month: 50,000 lookups of one tenant, whose topics drift. Scores and truth are drawn at random, without a
model; the code that draws samples and follows their verdicts is the real one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from services.cache.semantic_match.record import FLOOR
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from services.cache.semantic_match.verification import Verification

ACME = Traffic("acme")

LOOKUPS, DAYS, ALLOWED, DEFAULT = 50_000, 30, 0.01, 0.95
Judge = Callable[[int, bool], bool]  # day, whether the answer is right: what it says


class Month:
    """4 of 10 lookups have a candidate. How near the wrong ones come moves with the topics, from `easy` to `hard`: the
    score at which half of the candidates are right."""

    def __init__(self, seed: int, judge: Judge, easy: float, hard: float, share: float = 0.02):
        self.rng, self.judge, self.easy, self.hard = random.Random(seed), judge, easy, hard
        thresholds = Thresholds(DEFAULT, ALLOWED)
        self.verification = Verification(thresholds, share, self.rng.random)
        self.right = self.wrong = self.right_by_default = 0
        self.in_force: list[float] = []  # at each day's end
        self._pass()

    def _pass(self) -> None:
        for number in range(LOOKUPS):
            day = number * DAYS // LOOKUPS
            self._look_up(day)
            if (number + 1) * DAYS // LOOKUPS > day:
                self.in_force.append(self.verification.thresholds.of(ACME))

    def _look_up(self, day: int) -> None:
        rng, verification = self.rng, self.verification
        candidate = rng.random() < 0.4
        verification.look_up(ACME, candidate)
        if not candidate:
            return
        half = self.easy + (self.hard - self.easy) * day / DAYS
        score = FLOOR + (1 - FLOOR) * rng.betavariate(2, 2)
        right = rng.random() < 1 / (1 + math.exp(-60 * (score - half)))
        accepted = score >= verification.thresholds.of(ACME)
        self.right += accepted and right
        self.wrong += accepted and not right
        self.right_by_default += score >= DEFAULT and right
        if verification.draws():
            verification.thresholds.verify(ACME, score, accepted, self.judge(day, right))

    @property
    def wrong_share(self) -> float:
        return self.wrong / LOOKUPS


def oracle(day: int, right: bool) -> bool:
    return right


@pytest.mark.parametrize("seed", range(5))
def test_a_month_of_drifting_topics_stays_within_what_is_allowed_and_finds_more_than_the_default(seed: int) -> None:
    month = Month(seed, oracle, easy=0.79, hard=0.82)
    assert month.wrong_share <= ALLOWED
    assert month.right > 1.5 * month.right_by_default
    assert month.verification.thresholds.alarms == 0
    assert month.verification.thresholds.measured.upper < 3 * ALLOWED


def test_a_tenant_for_whom_the_default_is_too_loose_is_tightened_within_the_month() -> None:
    month = Month(1, oracle, easy=0.99, hard=0.99)
    assert month.verification.thresholds.alarms >= 1
    assert month.in_force[-1] > DEFAULT


def test_a_judge_that_breaks_tightens_the_threshold_with_an_alarm_and_it_comes_back_when_that_is_well() -> None:
    """One that calls all wrong for two days; of every second candidate, since 2% would take longer than the month."""
    broken = range(5, 7)

    def judge(day: int, right: bool) -> bool:
        return right and day not in broken

    month = Month(2, judge, easy=0.79, hard=0.79, share=0.5)
    assert month.in_force[4] < DEFAULT
    assert month.in_force[6] > DEFAULT
    assert month.verification.thresholds.alarms >= 1
    assert month.in_force[-1] < DEFAULT
    assert month.wrong_share <= ALLOWED


def test_a_judge_that_calls_all_right_is_bounded_by_the_floor_alone() -> None:
    """A limit of the guarantee: the record believes a judge that accepts wrong answers."""
    month = Month(3, lambda day, right: True, easy=0.79, hard=0.82)
    assert month.in_force[-1] == FLOOR
