"""When verified traffic is said to have changed, on samples that are drawn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.cache.semantic_match import drift
from services.cache.semantic_match.drift import SCORES, WRONG, drifted
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic

AT = 0.93


def samples(
    rng: np.random.Generator, count: int, mean: float = 0.85, wrong: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Scores as verified ones lie, on the grid of thresholds, and which are wrong."""
    scores = np.clip(rng.normal(mean, 0.06, count), 0.75, 1.0).round(3)
    return scores, rng.random(count) < wrong


def binomial(count: int, share: float) -> np.ndarray:
    """The chance of each number, 0 to `count`."""
    return np.array([math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)])


def joined(older: tuple[np.ndarray, np.ndarray], newer: tuple[np.ndarray, np.ndarray]) -> str:
    return drifted(np.concatenate([older[0], newer[0]]), np.concatenate([older[1], newer[1]]), AT)


def test_traffic_that_stays_as_it_is_is_not_said_to_have_changed() -> None:
    rng = np.random.default_rng(1)
    said = [joined(samples(rng, count), samples(rng, count)) for count in (100, 400, 2_500) for _ in range(150)]
    assert said == [""] * len(said)


@pytest.mark.parametrize("count", [500, 2_500])
def test_questions_that_are_nearer_or_farther_than_before_are_a_change(count: int) -> None:
    rng = np.random.default_rng(2)
    for mean in (0.82, 0.88):
        assert joined(samples(rng, count), samples(rng, count, mean)) == SCORES


def test_near_the_threshold_more_that_are_wrong_are_a_change_and_elsewhere_they_are_none() -> None:
    rng = np.random.default_rng(3)
    before, after = samples(rng, 1_500), samples(rng, 1_500)
    gray = np.abs(after[0] - AT) <= drift.GRAY
    assert joined(before, (after[0], np.where(gray, rng.random(1_500) < 0.4, after[1]))) == WRONG
    assert joined(before, (after[0], np.where(gray, after[1], True))) == ""


@pytest.mark.parametrize(("older", "newer"), [(20, 20), (50, 50), (20, 180), (180, 20)])
def test_halves_of_which_one_is_larger_are_said_to_differ_by_chance_no_more_often_than_even_ones(
    older: int, newer: int
) -> None:
    """Exactly: over all that can be drawn where the same share is wrong in both."""
    said = np.array(
        [
            [drift._differ(np.arange(older) < one, np.arange(newer) < other) for other in range(newer + 1)]
            for one in range(older + 1)
        ]
    )
    for share in (0.005, 0.01, 0.02, 0.05, 0.2, 0.5):
        chances = np.outer(binomial(older, share), binomial(newer, share))
        assert chances[said].sum() <= 1 / 20_000


def test_a_few_wrong_of_a_few_beside_few_of_many_are_a_change() -> None:
    many = np.arange(180) < 2
    assert drift._differ(np.arange(20) < 6, many)
    assert drift._differ(many, np.arange(20) < 6)
    assert not drift._differ(np.arange(20) < 2, many)


def test_few_samples_say_nothing() -> None:
    rng = np.random.default_rng(4)
    assert joined(samples(rng, 99), samples(rng, 99, 0.95)) == ""
    assert drifted(np.empty(0), np.empty(0, bool), AT) == ""


def test_equal_samples_are_no_drift() -> None:
    scores, wrong = np.full(1_000, 0.9), np.zeros(1_000, bool)
    assert drifted(scores, wrong, AT) == ""
    assert drifted(scores, ~wrong, AT) == ""


def test_a_category_that_drifts_is_reported_once_and_no_other_is(caplog: pytest.LogCaptureFixture) -> None:
    rng, thresholds = np.random.default_rng(5), Thresholds(AT, 0.01)
    moved, same, category = Traffic("moved"), Traffic("same"), Traffic("same", "prices")

    def verified(traffic: Traffic, mean: float, count: int = 400) -> None:
        for score, wrong in zip(*samples(rng, count, mean, 0.001), strict=True):
            thresholds.look_up(traffic, True)
            thresholds.verify(traffic, float(score), bool(score >= AT), not wrong)

    for traffic in (moved, same, category):
        verified(traffic, 0.85)
    verified(same, 0.85)
    assert (thresholds.drifting, thresholds.drift("moved"), thresholds.drift("nobody")) == (0, "", "")
    verified(moved, 0.9)
    verified(category, 0.9)
    assert (thresholds.drift("moved"), thresholds.drift("same"), thresholds.drifting) == (SCORES, "", 2)
    warned = [record.getMessage() for record in caplog.records if "unlike" in record.message]
    assert [line.partition(": ")[0] for line in warned] == ["tenant moved", "tenant same, category prices"]
    verified(moved, 0.9, 5_000)
    assert thresholds.drift("moved") == ""
