"""Each tenant's threshold follows what was verified. Scores and truth are simulated."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.semantic_match import record
from services.cache.semantic_match.record import FLOOR, NEVER
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic

ACME, GLOBEX, UMBRA = Traffic("acme"), Traffic("globex"), Traffic("umbra")

ALLOWED, DEFAULT = 0.01, 0.95
REPORTS = st.lists(st.tuples(st.integers(150, 200), st.booleans()), min_size=1, max_size=400)


class Simulated:
    """A simulation: half of the lookups have a candidate, whose score is even from 0.75 to 1, and whose answer is
    wrong the more often the less it scores."""

    def __init__(self, seed: str, worst: float = 0.2, judge: Callable[[bool], bool] = bool, default: float = DEFAULT):
        self.rng, self.worst, self.judge = random.Random(seed), worst, judge
        self.thresholds = Thresholds(default, ALLOWED)
        for _ in range(2_000):
            self.thresholds.look_up(ACME, self.rng.random() < 0.5)

    @property
    def now(self) -> float:
        return self.thresholds.of(ACME)

    def report(self, count: int) -> None:
        for _ in range(count):
            score = self.rng.uniform(FLOOR, 1)
            right = self.rng.random() >= self.worst * (1 - score) / (1 - FLOOR)
            self.thresholds.verify(ACME, score, score >= self.now, self.judge(right))

    def wrong_share(self, threshold: float) -> float:
        """The true share of wrong hits at a threshold."""
        return 0.5 * self.worst * min((1 - threshold) / (1 - FLOOR), 1) ** 2 / 2 if threshold < 1 else 0.0


def test_until_something_is_certified_the_default_is_in_force() -> None:
    traffic = Simulated("start")
    assert traffic.now == DEFAULT
    traffic.report(50)
    assert traffic.now == DEFAULT
    assert traffic.thresholds.of(GLOBEX) == DEFAULT


def test_the_threshold_becomes_as_loose_as_is_safe() -> None:
    traffic = Simulated("loosens")
    traffic.report(4_000)
    assert FLOOR < traffic.now < 0.92
    assert 0.003 < traffic.wrong_share(traffic.now) <= ALLOWED


def test_the_true_error_exceeds_what_is_allowed_in_one_of_twenty_runs_at_the_most() -> None:
    runs, exceeded = 75, 0
    for run in range(runs):
        traffic = Simulated(f"run {run}", worst=0.4, default=0.98)  # itself within what is allowed
        assert traffic.wrong_share(0.98) < ALLOWED
        worst = 0.0
        for _ in range(150):
            traffic.report(8)
            worst = max(worst, traffic.wrong_share(traffic.now))
        exceeded += worst > ALLOWED
    assert exceeded / runs <= 0.05 + 0.0755  # three standard deviations


def test_a_judge_that_says_right_to_all_loosens_nothing_below_the_floor() -> None:
    traffic = Simulated("flatters", worst=1.0, judge=lambda right: True)
    traffic.report(1_000)
    assert traffic.now == FLOOR


def test_wrong_hits_at_the_default_tighten_it_at_once_and_raise_one_alarm(caplog: pytest.LogCaptureFixture) -> None:
    traffic = Simulated("alarm", judge=lambda right: False)
    with caplog.at_level(logging.WARNING):
        traffic.report(60)
    assert traffic.now > DEFAULT
    assert traffic.thresholds.alarms == 1
    assert "tenant acme: by what was verified, more than 0.01 of its lookups may be wrong hits at 0.95" in caplog.text
    traffic.report(200)
    assert traffic.now >= 1
    assert traffic.thresholds.alarms == 1
    assert traffic.thresholds.of(GLOBEX) == DEFAULT


def test_hits_that_were_off_return_with_good_samples() -> None:
    traffic = Simulated("recovers", judge=lambda right: False)
    traffic.report(300)
    assert traffic.now >= 1
    traffic.judge = bool
    traffic.report(9_000)
    assert traffic.now < DEFAULT


def test_a_certified_threshold_that_is_withdrawn_is_an_alarm_before_the_default_is_known_to_be_too_loose() -> None:
    traffic = Simulated("withdrawn")
    traffic.report(4_000)
    assert traffic.now < DEFAULT
    traffic.judge = lambda right: False
    while traffic.now <= DEFAULT:
        traffic.report(1)
    assert traffic.thresholds.alarms == 1


@settings(deadline=None)
@given(reports=REPORTS, which=st.integers(0))
def test_a_right_one_that_had_been_wrong_would_have_loosened_nothing(
    reports: list[tuple[int, bool]], which: int
) -> None:
    def after(reports: list[tuple[int, bool]]) -> float:
        kept = Thresholds(DEFAULT, ALLOWED)
        for score, right in reports:
            kept.verify(ACME, score / 200, True, right)
        return kept.of(ACME)

    which %= len(reports)
    worse = [*reports[:which], (reports[which][0], False), *reports[which + 1 :]]
    assert after(worse) >= after(reports)


@settings(deadline=None)
@given(reports=REPORTS, share=st.sampled_from([0.05, 0.3, 1.0]))
def test_one_more_wrong_hit_never_loosens(reports: list[tuple[int, bool]], share: float) -> None:
    kept = Thresholds(DEFAULT, ALLOWED)
    for number in range(100):
        kept.look_up(ACME, number < 100 * share)
    for score, right in reports:
        before = kept.of(ACME)
        kept.verify(ACME, score / 200, score / 200 >= before, right)
        if not right and score / 200 >= before:
            assert kept.of(ACME) >= before


def test_lookups_without_a_candidate_make_room_for_more_of_the_others() -> None:
    few, many = Thresholds(DEFAULT, ALLOWED), Thresholds(DEFAULT, ALLOWED)
    for number in range(1_000):
        few.look_up(ACME, number % 10 == 0)
        many.look_up(ACME, True)
    for each in (few, many):
        for number in range(500):
            each.verify(ACME, FLOOR + number % 50 / 200, True, number % 50 > 1)
    assert few.of(ACME) == FLOOR
    assert many.of(ACME) > FLOOR + 0.005


def test_a_sudden_rise_of_candidates_counts_at_once() -> None:
    kept = Thresholds(DEFAULT, ALLOWED)
    for number in range(10_000):
        kept.look_up(ACME, number > 8_000)
    assert kept.measured.upper == 1.0
    kept.verify(ACME, 0.8, True, False)
    assert kept.measured.estimate > 0.8


def test_wrong_hits_are_measured_as_a_share_of_all_lookups() -> None:
    kept = Thresholds(DEFAULT, ALLOWED)
    for number in range(1_000):
        kept.look_up(ACME, number % 2 == 0)
    for number in range(400):
        kept.verify(ACME, 0.96, True, number % 40 != 0)
        kept.verify(GLOBEX, 0.8, False, False)
    measured = kept.measured
    assert (measured.samples, measured.wrong) == (800, 10)
    assert measured.estimate == pytest.approx(0.5 * 10 / 800, rel=0.01)
    assert 0 < measured.lower < measured.estimate < measured.upper < 0.02


def test_only_so_many_tenants_and_samples_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RECORDS", 2)
    monkeypatch.setattr(record, "SAMPLES", 300)
    kept = Thresholds(DEFAULT, ALLOWED)
    for tenant in ("acme", "globex", "umbra"):
        for _ in range(1_000):
            kept.verify(Traffic(tenant), 1.0, True, False)
    assert kept.of(ACME) == DEFAULT
    assert kept.of(UMBRA) == NEVER
    assert kept.measured.samples <= 300
    for _ in range(450):  # all that was wrong is gone by then
        kept.verify(UMBRA, 0.8, True, True)
    assert kept.measured.wrong == 0
    assert kept.of(UMBRA) == DEFAULT
