"""A replica's average time to first text."""

from __future__ import annotations

from typing import Any

import pytest

from services.gateway.upstream.replica import Replica

_unused: Any = None


def replica() -> Replica:
    return Replica("a:1", llm=_unused, breaker=_unused, start=_unused)


def test_the_first_call_is_the_average_and_later_ones_move_it():
    known = replica()
    known.answered(1.0)
    assert known.first_s == 1.0
    for _ in range(50):
        known.answered(0.1)
    assert known.first_s == pytest.approx(0.1, rel=0.01)


def test_a_call_that_ended_without_a_text_counts_where_it_took_longer_than_usual():
    known = replica()
    known.gave_up(5.0)  # nothing is known of it: a caller may have had little time
    assert not known.first_s
    known.answered(0.1)
    known.gave_up(0.05)
    assert known.first_s == 0.1
    known.gave_up(1.2)
    assert known.first_s == pytest.approx(0.3)
