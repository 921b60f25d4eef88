"""Thresholds that are certified, and a score that is fitted."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.training.pairs import Pair, Parts, one_of_each
from services.cache.verdict.bounds import clopper_pearson
from tests.unit.cache.conftest import BagOfWords

SCORED = st.lists(st.tuples(st.sampled_from([-1.0, 0.2, 0.5, 0.8, 0.9, 1.0]), st.booleans()), min_size=1, max_size=300)


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    """With scikit-learn, which takes over a second: of every worker's if it were imported above."""
    from services.cache.training import fit

    return fit


@given(scored=SCORED)
@settings(max_examples=50)
def test_every_threshold_holds_its_limit_and_the_next_looser_does_not(
    fit: ModuleType, scored: list[tuple[float, bool]]
) -> None:
    certified = {threshold.wrong: threshold for threshold in fit.thresholds(scored)}
    steps = sorted({score for score, _ in scored if score >= 0}, reverse=True)
    for limit in fit.LIMITS:
        held = [
            step
            for step in steps
            if clopper_pearson(sum(s >= step and not right for s, right in scored), len(scored))[1] <= limit
        ]
        assert (certified[limit].score if limit in certified else None) == (min(held) if held else None)


@pytest.mark.parametrize(("most", "lookups"), [(38, 5_000), (83, 10_000), (0, 299), (-1, 298)])
def test_how_many_wrong_hits_one_percent_allows(fit: ModuleType, most: int, lookups: int) -> None:
    assert fit.most_wrong(0.01, lookups) == most


def test_what_is_no_hit_counts_as_a_lookup(fit: ModuleType) -> None:
    scored = [(0.9, True)] * 10 + [(-1.0, True)] * 990
    (loosest, *_) = [each for each in fit.thresholds(scored) if each.wrong == 0.01]
    assert (loosest.lookups, loosest.wrong_hits, loosest.found) == (1_000, 0, 0.01)


def test_a_score_is_fitted_to_what_tells_duplicates_apart(fit: ModuleType) -> None:
    """The bag of words sees no order of words, which is what tells these apart."""
    rng = random.Random(0)
    words = [f"b{a}l{b}m" for a in "aeiou" for b in "aeiou"]

    def pair(number: int) -> Pair:
        a = rng.sample(words, 6)
        duplicate = number % 2 == 0
        return Pair(" ".join(a), f"please {' '.join(a if duplicate else [*a[3:], *a[:3]])}", duplicate)

    parts = Parts([], [pair(number) for number in range(200)], [pair(number) for number in range(600)])
    made = fit.fitted(parts, BagOfWords(), None, {"pairs": 800}, lambda line: None)
    assert made.weights["word order differs"] < 0
    assert made.weights["verifier"] == 0
    (one_percent,) = [each for each in made.thresholds if each.wrong == 0.01]
    assert (one_percent.wrong_hits, one_percent.found, one_percent.lookups) == (0, 1.0, 600)


def test_too_few_pairs_are_refused(fit: ModuleType) -> None:
    parts = Parts([], [Pair("one", "one two", True)], [])
    with pytest.raises(fit.TooFew, match="at least 10 near pairs of each kind, got 0 duplicates of 0"):
        fit.fitted(parts, BagOfWords(), None, {}, lambda line: None)


@pytest.mark.parametrize("size", [1, 5])
def test_more_than_one_percent_is_certified_as_one_in_fewer_than_one_of_twenty_draws(
    fit: ModuleType, size: int
) -> None:
    """Also where the pairs of each group, which share a question, are all wrong or all right."""
    rng, certified, draws = random.Random(size), 0, 120
    for _ in range(draws):
        groups = [(number, rng.random() >= 0.0101) for number in range(400)]
        drawn = [Pair(f"{number}", f"{number}/{each}", right) for number, right in groups for each in range(size)]
        scored = [(0.9, pair.duplicate) for pair in one_of_each(drawn, rng)]
        certified += any(each.wrong <= 0.01 for each in fit.thresholds(scored))
    assert certified / draws < 0.05
