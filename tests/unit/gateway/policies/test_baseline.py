from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.gateway.policies.baseline import LatencyBaseline, ThroughputDrop
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


@pytest.fixture
def sag(clock: PausedClock) -> ThroughputDrop:
    """Of a model that has sent 100 tokens a second for a while."""
    sag = ThroughputDrop("m", clock=clock)
    see(sag, clock, 100, answers=100)
    return sag


def see(sag: ThroughputDrop, clock: PausedClock, rate: float, answers: int = 1) -> None:
    for _ in range(answers):
        clock.advance(1)
        sag.saw(20, 20 / rate)


def test_a_steady_rate_is_as_usual(sag):
    assert (sag.ratio(), sag.sagging) == (pytest.approx(1, abs=0.03), False)


def test_a_rate_that_falls_to_a_third_sags_within_about_ten_answers(sag, clock):
    see(sag, clock, 30, answers=12)
    assert (sag.ratio(), sag.sagging) == (pytest.approx(0.36, abs=0.05), True)
    assert REGISTRY.get_sample_value("hedgerow_token_rate_ratio", {"model": "m"}) == pytest.approx(sag.ratio())


def test_one_stalled_answer_is_no_sag(sag, clock):
    see(sag, clock, 0.5)
    assert (sag.ratio(), sag.sagging) == (pytest.approx(0.82, abs=0.03), False)


def test_it_recovers_only_well_above_where_it_began(sag, clock):
    see(sag, clock, 30, answers=12)
    see(sag, clock, 60, answers=30)
    assert 0.5 < sag.ratio() < 0.7
    assert sag.sagging
    see(sag, clock, 100, answers=10)
    assert not sag.sagging


def test_a_rate_between_the_two_marks_does_not_begin_a_sag(sag, clock):
    see(sag, clock, 60, answers=50)
    assert 0.5 < sag.ratio() < 0.7
    assert not sag.sagging


def test_an_answer_that_came_at_once_does_not_hide_a_sag(sag, clock):
    see(sag, clock, 30, answers=20)
    see(sag, clock, 10_000)
    assert sag.sagging


def test_a_few_tokens_say_nothing(sag):
    before = sag.ratio()
    for _ in range(20):
        sag.saw(3, 60)
        sag.saw(20, 0)
    assert sag.ratio() == before


def test_too_few_answers_say_nothing(clock):
    sag = ThroughputDrop("new", clock=clock)
    see(sag, clock, 100, answers=10)
    see(sag, clock, 1, answers=9)
    assert (sag.ratio(), sag.sagging) == (1, False)


def test_a_sag_is_forgotten_when_nothing_is_seen(sag, clock):
    see(sag, clock, 30, answers=20)
    assert sag.sagging
    clock.advance(61)
    assert (sag.ratio(), sag.sagging) == (1, False)
    see(sag, clock, 30)
    assert (sag.ratio(), sag.sagging) == (pytest.approx(0.87, abs=0.03), False)


def test_a_lasting_sag_becomes_the_usual(sag, clock):
    see(sag, clock, 30, answers=1_000)
    assert (sag.ratio(), sag.sagging) == (pytest.approx(1, abs=0.05), False)


@given(answers=st.lists(st.tuples(st.integers(0, 1_000), st.floats(0, 1e3)), max_size=200))
def test_the_ratio_stays_between_nothing_and_twice_the_usual(answers):
    sag = ThroughputDrop("any", clock=PausedClock())
    for tokens, seconds in answers:
        sag.saw(tokens, seconds)
        assert 0 <= sag.ratio() <= 2
        assert not sag.sagging or sag.ratio() < 0.7
