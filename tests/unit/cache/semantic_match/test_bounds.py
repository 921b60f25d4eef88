"""Bounds of a share, by simulation and against what is known."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache.semantic_match import bounds
from tests.examples import examples

SAMPLES = st.integers(1, 3_000).flatmap(lambda count: st.tuples(st.integers(0, count), st.just(count)))


@pytest.mark.parametrize("share", [0.003, 0.01, 0.05, 0.3])
def test_a_share_leaves_its_bounds_in_one_of_twenty_runs_at_the_most_however_often_one_looks(share: float) -> None:
    rng, runs, below, above = random.Random(f"{share}"), 300, 0, 0
    lower, upper = cache(bounds.lower), cache(bounds.upper)  # runs meet the same counts
    for _ in range(runs):
        hits, low, high = 0, True, True
        for count in range(1, 1_001):
            hits += rng.random() < share
            if count % 10 == 0:
                low = low and lower(hits, count) <= share
                high = high and share <= upper(hits, count)
        below, above = below + (not low), above + (not high)
    noise = 0.04  # three standard deviations of 300 runs
    assert below / runs <= 0.05 + noise
    assert above / runs <= 0.05 + noise


@settings(deadline=None, max_examples=examples(50))
@given(SAMPLES)
def test_bounds_hold_what_was_seen_and_more_than_one_look_would(sample: tuple[int, int]) -> None:
    from scipy.stats import binomtest  # takes a second

    hits, count = sample
    low, high = bounds.lower(hits, count), bounds.upper(hits, count)
    assert 0 <= low <= hits / count <= high <= 1
    once = binomtest(hits, count).proportion_ci(0.9, method="exact")  # one look, 95% of each side
    if count >= 100:
        assert low <= once[0] + 1e-9
        assert high >= once[1] - 1e-9


@settings(deadline=None)
@given(SAMPLES)
def test_one_more_hit_raises_both_bounds_and_one_more_miss_lowers_them(sample: tuple[int, int]) -> None:
    hits, count = sample
    for bound in (bounds.lower, bounds.upper):
        assert bound(hits, count + 1) <= bound(hits, count) + 1e-9 <= bound(hits + 1, count + 1) + 2e-9
