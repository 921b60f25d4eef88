"""How large a share may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cache.verdict.bounds import clopper_pearson_lower, clopper_pearson_upper


@pytest.mark.parametrize(("wrong", "lookups", "allowed"), [(38, 5_000, 0.01), (83, 10_000, 0.01), (0, 299, 0.01)])
def test_the_most_wrong_hits_that_a_limit_of_one_percent_allows(wrong: int, lookups: int, allowed: float) -> None:
    assert clopper_pearson_upper(wrong, lookups) <= allowed < clopper_pearson_upper(wrong + 1, lookups)


def test_the_bounds_are_those_of_the_textbook() -> None:
    # R: binom.test(5, 100, alternative = "less") and "greater", conf.level 0.95
    assert clopper_pearson_upper(5, 100) == pytest.approx(0.10225, abs=1e-4)
    assert clopper_pearson_lower(5, 100) == pytest.approx(0.01991, abs=1e-4)


@given(st.integers(0, 400), st.integers(1, 400))
def test_the_share_that_was_seen_lies_between_the_bounds(one: int, other: int) -> None:
    successes, trials = min(one, other), max(one, other)
    seen = successes / trials
    assert 0 <= clopper_pearson_lower(successes, trials) <= seen + 1e-6
    assert seen <= clopper_pearson_upper(successes, trials) <= 1


def test_of_nothing_everything_is_possible() -> None:
    assert clopper_pearson_upper(0, 0) == 1
    assert clopper_pearson_lower(0, 0) == 0
