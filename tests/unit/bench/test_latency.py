"""The simulated provider's latencies are the ones that were chosen."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.jagged.latency import ARTICLES, ARTICLES_TOKENS, Mixture
from bench.stats import TO_THE_TAIL, percentiles


@pytest.fixture(scope="module")
def totals_ms() -> list[float]:
    rest_ms = (ARTICLES_TOKENS - 1) * ARTICLES.each_ms
    rng = random.Random(1)
    return [ARTICLES.first.draw_ms(rng) + rest_ms for _ in range(200_000)]


def test_the_articles_provider_has_the_articles_percentiles(totals_ms: list[float]) -> None:
    found = percentiles(totals_ms)
    assert found["p50"] == pytest.approx(200, rel=0.01)
    assert found["p95"] == pytest.approx(2_300, rel=0.05)
    assert found["p99"] > 8_000
    assert sum(total > 8_000 for total in totals_ms) / len(totals_ms) == pytest.approx(0.023, rel=0.05)


def test_the_same_seed_draws_the_same_times() -> None:
    first, again = ([ARTICLES.first.draw_ms(rng) for _ in range(50)] for rng in (random.Random(3), random.Random(3)))
    assert first == again
    assert {Mixture(70).draw_ms(random.Random(seed)) for seed in range(5)} == {70}, (
        "a mixture without a spread has one value"
    )


@given(seed=st.integers(), tail_share=st.floats(0, 1), alpha=st.floats(0.1, 3))
def test_no_call_takes_longer_than_the_longest(seed: int, tail_share: float, alpha: float) -> None:
    mixture = Mixture(100, 1, tail_share, 1_000, alpha, longest_ms=5_000)
    rng = random.Random(seed)
    assert all(0 <= mixture.draw_ms(rng) <= 5_000 for _ in range(20))


def test_percentiles_reach_into_the_tail() -> None:
    assert percentiles(range(1_001), 1, TO_THE_TAIL) == {"p50": 500, "p95": 950, "p99": 990, "p999": 999}
