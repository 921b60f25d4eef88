from __future__ import annotations

import pytest

from services.gateway.policies.baseline import LatencyBaseline
from tests.clock import PausedClock


@pytest.fixture
def clock() -> PausedClock:
    return PausedClock()


def test_until_enough_has_been_seen_the_expectation_says_what_is_usual(clock):
    usual = LatencyBaseline(0.3, clock)
    for _ in range(19):
        usual.came(2.0)
    assert (usual.needs_s(), usual.quantile_s(0.5)) == (0.3, None)
    usual.came(2.0)
    assert usual.needs_s() == pytest.approx(2.0, rel=0.02)


def test_silence_tells_from_the_time_on_that_95_of_100_calls_needed_at_most(clock):
    usual = LatencyBaseline(10.0, clock)
    for value in range(1, 101):
        usual.came(value / 100)
    clock.advance(1)
    assert not usual.tells(0.9)
    assert usual.tells(1.0)


def test_what_is_long_ago_is_not_usual_any_more(clock):
    usual = LatencyBaseline(0.3, clock)
    for _ in range(50):
        usual.came(2.0)
    clock.advance(700)
    assert usual.needs_s() == 0.3
