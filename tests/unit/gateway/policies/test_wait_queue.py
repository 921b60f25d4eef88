from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.policies.wait_queue import Patience


def after(came: int, lost: int, full_s: float = 0.2) -> Patience:
    """A patience that has judged once."""
    patience = Patience(full_s)
    patience.came, patience.lost = came, lost
    patience.seconds(1_000)
    return patience


@pytest.mark.parametrize(
    ("came", "lost", "full_s", "wait_s"),
    [(100, 20, 0.2, 0.2), (100, 21, 0.2, 0.005), (8, 8, 0.2, 0.2), (100, 100, 0.001, 0.001)],
    ids=["a fifth lost", "more than a fifth lost", "too few arrivals", "a full wait below that of overload"],
)
def test_waits_are_short_where_more_than_a_fifth_of_enough_arrivals_were_lost(came, lost, full_s, wait_s):
    assert after(came, lost, full_s).seconds(1_000) == wait_s


def test_it_is_judged_again_only_after_a_full_wait():
    patience = after(100, 100)
    patience.came, patience.lost = 100, 0
    assert patience.seconds(1_000.1) == 0.005
    assert patience.seconds(1_000.2) == 0.2


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 50), st.integers(0, 50)), max_size=30))
def test_it_is_never_more_than_the_full_wait(steps):
    patience, now = Patience(0.2), 0.0
    for seconds, came, lost in steps:
        now += seconds
        patience.came += came
        patience.lost += min(lost, came)
        assert patience.seconds(now) in (0.2, 0.005)


@pytest.mark.parametrize(("empty_between", "wait_s"), [(False, 0.005), (True, 0.2)])
def test_it_is_short_when_the_line_has_stood_for_half_a_wait(empty_between: bool, wait_s: float):
    patience = Patience(0.2)
    patience.stands(True, 1_000)
    assert patience.seconds(1_000.05) == 0.2
    if empty_between:
        patience.stands(False, 1_000.05)
        patience.stands(True, 1_000.06)
    assert patience.seconds(1_000.11) == wait_s
