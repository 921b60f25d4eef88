"""What a client measures, on a clock that the test moves."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from hedgerow import Timings
from hedgerow._meter import Meter


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms / 1000


def test_times_count_from_sending_the_request() -> None:
    clock = Clock()
    meter = Meter(clock)
    for at, text, tokens in [(40, "It is", 2), (60, " Paris.", 2), (80, " Yes", 1), (100, ".", 1)]:
        clock.ms = at
        meter.text(text, tokens)
    clock.ms = 110
    assert astuple(meter.timings()) == pytest.approx((40, 15, 80, 110))


def test_tokens_that_came_with_the_first_text_are_no_gap() -> None:
    clock = Clock()
    meter = Meter(clock)
    clock.ms = 40
    meter.text("all at once", 9)
    clock.ms = 50
    assert meter.timings() == Timings(40, None, 50, 50)


def test_an_answer_without_text_has_only_a_total() -> None:
    clock = Clock()
    meter = Meter(clock)
    clock.ms = 7
    assert meter.timings() == Timings(None, None, None, 7)
