"""Measurements of a client, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from hedgerow import Timings
from hedgerow._meter import Meter
from tests.clock import PausedClock


@pytest.fixture
def clock() -> PausedClock:
    return PausedClock()


@pytest.fixture
def meter(clock: PausedClock) -> Meter:
    return Meter(clock)


def test_times_count_from_sending_the_request(clock: PausedClock, meter: Meter) -> None:
    for after_s, text, tokens in [(0.04, "It is", 2), (0.02, " Paris.", 2), (0.02, " Yes", 1), (0.02, ".", 1)]:
        clock.advance(after_s)
        meter.text(text, tokens)
    clock.advance(0.01)
    assert astuple(meter.timings()) == pytest.approx((40, 15, 80, 110))


def test_tokens_that_came_with_the_first_text_are_no_gap(clock: PausedClock, meter: Meter) -> None:
    clock.advance(0.04)
    meter.text("all at once", 9)
    clock.advance(0.01)
    assert meter.timings() == Timings(pytest.approx(40), None, pytest.approx(50), pytest.approx(50))


def test_an_answer_without_text_has_only_a_total(clock: PausedClock, meter: Meter) -> None:
    clock.advance(0.007)
    assert meter.timings() == Timings(None, None, None, pytest.approx(7))
