from __future__ import annotations

import random

import pytest

from services.gateway.policies.retry import RetryBudget
from services.runtime.errors import Exhausted, TooLate, Unavailable

GONE = Unavailable("gone")


def earned(retry: RetryBudget, requests: int = 10) -> RetryBudget:
    for _ in range(requests):
        retry.count_request()
    return retry


def test_the_pause_is_random_up_to_the_base():
    retry = earned(RetryBudget(1, 10, 0.02, random.Random(1)))
    pauses = [retry.pause_s(GONE, 1.0) for _ in range(10)]
    assert len(set(pauses)) == 10
    assert all(0 <= pause <= 0.02 for pause in pauses)


@pytest.mark.parametrize("error", [Exhausted("busy"), TooLate("late")])
def test_busy_and_late_calls_are_not_retried(error):
    assert earned(RetryBudget(1, 10, 0)).pause_s(error, 1.0) is None


def test_nothing_is_retried_past_the_deadline():
    retry = earned(RetryBudget(1, 10, 0))
    assert retry.pause_s(GONE, 0.0) is None
    assert retry.pause_s(GONE, 0.1) == 0  # and that cost nothing


def retries(retry: RetryBudget, requests: int) -> int:
    """How many of the requests are retried; each wants to be."""
    retried = 0
    for _ in range(requests):
        retry.count_request()
        retried += retry.pause_s(GONE, 1.0) is not None
    return retried


def test_a_fifth_of_the_requests_may_be_retried_and_ten_more_after_a_start():
    retry = RetryBudget(0.2, 10, 0)
    assert retries(retry, 10) == 10
    assert retries(retry, 1_000) == pytest.approx(200, abs=2)


def test_a_share_of_nothing_turns_retries_off_from_the_start():
    assert retries(RetryBudget(0, 10, 0), 100) == 0
