from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.policies.wait_queue import Patience


def after(came: int, lost: int, full_s: float = 0.2) -> Patience:
    """A patience that has judged once."""
    patience = Patience(full_s)
    patience.came, patience.lost = came, lost
    patience.seconds(1_000)
    return patience


def test_it_is_short_when_more_than_a_fifth_were_lost():
    assert after(100, 20).seconds(1_000) == 0.2
    assert after(100, 21).seconds(1_000) == 0.005


def test_few_arrivals_say_nothing():
    assert after(8, 8).seconds(1_000) == 0.2


def test_it_is_judged_again_only_after_a_full_wait():
    patience = after(100, 100)
    patience.came, patience.lost = 100, 0
    assert patience.seconds(1_000.1) == 0.005
    assert patience.seconds(1_000.2) == 0.2


def test_overload_makes_no_wait_longer():
    assert after(100, 100, full_s=0.001).seconds(1_000) == 0.001


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_it_is_never_more_than_the_full_wait(steps):
    patience, now = Patience(0.2), 0.0
    for seconds, came, lost in steps:
        now += seconds
        patience.came += came
        patience.lost += min(lost, came)
        assert patience.seconds(now) in (0.2, 0.005)


def test_it_is_short_when_the_line_has_stood_for_half_a_wait():
    patience = Patience(0.2)
    patience.stands(True, 1_000)
    assert patience.seconds(1_000.05) == 0.2
    assert patience.seconds(1_000.11) == 0.005


def test_a_line_that_was_empty_in_between_does_not_stand():
    patience = Patience(0.2)
    patience.stands(True, 1_000)
    patience.stands(False, 1_000.05)
    patience.stands(True, 1_000.06)
    assert patience.seconds(1_000.11) == 0.2
