from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from services.gateway.policies.baseline import LatencyBaseline, ThroughputDrop
from tests.clock import PausedClock


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
    assert not usual.is_overdue(0.9)
    assert usual.is_overdue(1.0)


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


@pytest.mark.parametrize(
    ("seen", "ratio", "sagging"),
    [
        pytest.param([], (0.97, 1.03), False, id="a steady rate is as usual"),
        pytest.param([(30, 12)], (0.31, 0.41), True, id="a third of it sags within about ten answers"),
        pytest.param([(0.5, 1)], (0.79, 0.85), False, id="one stalled answer is no sag"),
        pytest.param([(60, 50)], (0.5, 0.7), False, id="a rate between the two marks does not begin one"),
        pytest.param([(30, 12), (60, 30)], (0.5, 0.7), True, id="nor does it end one"),
        pytest.param([(30, 12), (60, 30), (100, 10)], (0.7, 1), False, id="it ends well above where it began"),
        pytest.param([(30, 20), (10_000, 1)], (0.3, 0.7), True, id="an answer that came at once does not hide it"),
        pytest.param([(30, 1_000)], (0.95, 1.05), False, id="a lasting one becomes the usual"),
    ],
)
def test_a_rate_sags_well_below_the_usual(sag, clock, seen: list[tuple[float, int]], ratio, sagging: bool):
    """`seen`: after 100 answers at 100 tokens a second, at which rate how many came."""
    for rate, answers in seen:
        see(sag, clock, rate, answers)
    least, most = ratio
    assert least <= sag.ratio() <= most
    assert sag.sagging == sagging


def test_the_ratio_is_in_the_metrics(sag, clock):
    see(sag, clock, 30, answers=12)
    assert REGISTRY.get_sample_value("hedgerow_token_rate_ratio", {"model": "m"}) == pytest.approx(sag.ratio())


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


@given(answers=st.lists(st.tuples(st.integers(0, 1_000), st.floats(0, 1e3)), max_size=200))
def test_the_ratio_stays_between_nothing_and_twice_the_usual(answers):
    sag = ThroughputDrop("any", clock=PausedClock())
    for tokens, seconds in answers:
        sag.saw(tokens, seconds)
        assert 0 <= sag.ratio() <= 2
        assert not sag.sagging or sag.ratio() < 0.7
