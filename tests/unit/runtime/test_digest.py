from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.digest import WindowedDigest
from tests.clock import PausedClock

WINDOW_S = 60.0


def test_a_digest_keeps_old_and_new_slices_of_its_window_apart():
    clock = PausedClock()
    digest = WindowedDigest(WINDOW_S, clock)
    digest.add(1_000)
    clock.advance(WINDOW_S * 0.9)
    digest.add(10)
    assert digest.latency().samples == digest.count == 2
    clock.advance(WINDOW_S * 0.5)
    assert digest.latency().p99_ms == pytest.approx(10, rel=0.02)
    assert digest.count == 1


def test_an_empty_digest_has_no_quantiles():
    digest = WindowedDigest(WINDOW_S, PausedClock())
    assert (digest.quantile(0.5), digest.latency(), digest.mean(), digest.count) == (None, None, 0, 0)


def test_the_first_values_show_at_once():
    digest = WindowedDigest(WINDOW_S, PausedClock())
    assert digest.quantile(1) is None
    for value in (10, 20):
        digest.add(value)
        assert digest.quantile(1) == pytest.approx(value, rel=0.02)


def test_quantiles_follow_new_values_after_a_while_or_when_they_are_many():
    clock = PausedClock()
    digest = WindowedDigest(WINDOW_S, clock)
    for _ in range(100):
        digest.add(10)
    assert digest.quantile(1) == pytest.approx(10, rel=0.02)
    digest.add(1_000)
    assert digest.quantile(1) == pytest.approx(10, rel=0.02)
    clock.advance(0.25)
    assert digest.quantile(1) == pytest.approx(1_000, rel=0.02)
    for _ in range(16):
        digest.add(5_000)
    assert digest.quantile(1) == pytest.approx(5_000, rel=0.02)


@given(values=st.lists(st.floats(0.1, 1e6), min_size=1, max_size=200), quantile=st.floats(0, 1))
def test_a_quantile_is_within_one_percent_of_a_value_of_its_rank(values, quantile):
    clock = PausedClock()
    digest = WindowedDigest(WINDOW_S, clock)
    for value in values:
        digest.add(value)
        digest.quantile(0.5)
    clock.advance(0.25)
    rank = quantile * (len(values) - 1)
    low, high = (sorted(values)[index] for index in (int(rank), min(int(rank) + 1, len(values) - 1)))
    assert low * 0.98 <= digest.quantile(quantile) <= high * 1.02


def test_an_older_value_leaves_the_window_before_newer_ones():
    clock = PausedClock()
    digest = WindowedDigest(WINDOW_S, clock)
    for age_s in (0, 45, 15, 45, 20):  # in any order
        digest.add(age_s + 1, age_s)
    assert digest.count == 5
    clock.advance(WINDOW_S / 2)
    assert digest.count == 3
    assert digest.quantile(1) == pytest.approx(21, rel=0.02)
    clock.advance(WINDOW_S)
    assert (digest.count, digest.quantile(0.5)) == (0, None)


@given(st.lists(st.floats(0, 2 * WINDOW_S), max_size=50))
def test_the_order_in_which_values_come_does_not_matter(ages_s):
    clock = PausedClock()
    digests = WindowedDigest(WINDOW_S, clock), WindowedDigest(WINDOW_S, clock)
    for age_s in ages_s:
        digests[0].add(age_s + 1, age_s)
    for age_s in sorted(ages_s):
        digests[1].add(age_s + 1, age_s)
    for _ in range(6):
        assert digests[0].latency() == digests[1].latency()
        clock.advance(WINDOW_S / 6)
