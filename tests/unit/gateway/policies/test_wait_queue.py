from __future__ import annotations

import pytest

from services.gateway.policies.wait_queue import WaitLimit


def after(arrived: int, shed: int, full_s: float = 0.2) -> WaitLimit:
    """A limit that has been judged once."""
    limit = WaitLimit(full_s)
    limit.arrived, limit.shed = arrived, shed
    limit.seconds(1_000)
    return limit


@pytest.mark.parametrize(
    ("arrived", "shed", "full_s", "wait_s"),
    [(100, 20, 0.2, 0.2), (100, 21, 0.2, 0.005), (8, 8, 0.2, 0.2), (100, 100, 0.001, 0.001)],
    ids=["a fifth shed", "more than a fifth shed", "too few arrivals", "a full wait below that of overload"],
)
def test_waits_are_short_where_more_than_a_fifth_of_enough_arrivals_were_shed(arrived, shed, full_s, wait_s):
    assert after(arrived, shed, full_s).seconds(1_000) == wait_s


def test_a_wait_limit_is_judged_again_only_after_a_full_wait():
    limit = after(100, 100)
    limit.arrived, limit.shed = 100, 0
    assert limit.seconds(1_000.1) == 0.005
    assert limit.seconds(1_000.2) == 0.2


@pytest.mark.parametrize(("quiet_s", "wait_s"), [(0.9, 0.005), (1.1, 0.2)])
def test_an_overload_ends_where_no_request_has_come_for_five_full_waits(quiet_s: float, wait_s: float):
    limit = after(100, 100)
    limit.arrived, limit.shed = 100, 100  # since it was judged
    assert limit.seconds(1_000 + quiet_s) == wait_s
    assert limit.overloaded(1_000 + quiet_s) is (wait_s < 0.2)


@pytest.mark.parametrize(("empty_between", "wait_s"), [(False, 0.005), (True, 0.2)])
def test_a_wait_limit_is_short_when_requests_have_waited_for_half_a_wait(empty_between: bool, wait_s: float):
    limit = WaitLimit(0.2)
    limit.note_waiting(True, 1_000)
    assert limit.seconds(1_000.05) == 0.2
    if empty_between:
        limit.note_waiting(False, 1_000.05)
        limit.note_waiting(True, 1_000.06)
    assert limit.seconds(1_000.11) == wait_s
