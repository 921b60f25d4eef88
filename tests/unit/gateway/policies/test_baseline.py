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
        usual.add(2.0)
    assert (usual.needs_s(), usual.quantile_s(0.5)) == (0.3, None)
    usual.add(2.0)
    assert usual.needs_s() == pytest.approx(2.0, rel=0.02)


def test_silence_is_overdue_after_the_time_that_95_of_100_calls_needed(clock):
    usual = LatencyBaseline(10.0, clock)
    for value in range(1, 101):
        usual.add(value / 100)
    clock.advance(1)
    assert not usual.is_overdue(0.9)
    assert usual.is_overdue(1.0)


def test_the_baseline_forgets_old_answers(clock):
    usual = LatencyBaseline(0.3, clock)
    for _ in range(50):
        usual.add(2.0)
    clock.advance(700)
    assert usual.needs_s() == 0.3


@pytest.fixture
def drop(clock: PausedClock) -> ThroughputDrop:
    """The throughput drop of a model that has sent 100 tokens a second for a while."""
    drop = ThroughputDrop("m", clock=clock)
    see(drop, clock, 100, answers=100)
    return drop


def see(drop: ThroughputDrop, clock: PausedClock, rate: float, answers: int = 1) -> None:
    for _ in range(answers):
        clock.advance(1)
        drop.add(20, 20 / rate)


@pytest.mark.parametrize(
    ("seen", "ratio", "active"),
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
def test_a_rate_sags_well_below_the_usual(drop, clock, seen: list[tuple[float, int]], ratio, active: bool):
    """`seen`: after 100 answers at 100 tokens a second, at which rate how many came."""
    for rate, answers in seen:
        see(drop, clock, rate, answers)
    least, most = ratio
    assert least <= drop.ratio() <= most
    assert drop.active == active


def test_the_ratio_is_in_the_metrics(drop, clock):
    see(drop, clock, 30, answers=12)
    assert REGISTRY.get_sample_value("hedgerow_token_rate_ratio", {"model": "m"}) == pytest.approx(drop.ratio())


def test_a_few_tokens_say_nothing(drop):
    before = drop.ratio()
    for _ in range(20):
        drop.add(3, 60)
        drop.add(20, 0)
    assert drop.ratio() == before


def test_too_few_answers_say_nothing(clock):
    drop = ThroughputDrop("new", clock=clock)
    see(drop, clock, 100, answers=10)
    see(drop, clock, 1, answers=9)
    assert (drop.ratio(), drop.active) == (1, False)


def test_a_sag_is_forgotten_when_nothing_is_seen(drop, clock):
    see(drop, clock, 30, answers=20)
    assert drop.active
    clock.advance(61)
    assert (drop.ratio(), drop.active) == (1, False)
    see(drop, clock, 30)
    assert (drop.ratio(), drop.active) == (pytest.approx(0.87, abs=0.03), False)


@given(answers=st.lists(st.tuples(st.integers(0, 1_000), st.floats(0, 1e3)), max_size=200))
def test_the_ratio_stays_between_nothing_and_twice_the_usual(answers):
    drop = ThroughputDrop("any", clock=PausedClock())
    for tokens, seconds in answers:
        drop.add(tokens, seconds)
        assert 0 <= drop.ratio() <= 2
        assert not drop.active or drop.ratio() < 0.7
