from __future__ import annotations

import random
from collections import Counter

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


@pytest.mark.parametrize(("share", "after_start", "later"), [(0.2, 10, 200), (0, 0, 0)])
def test_a_share_of_the_requests_may_be_retried_and_ten_more_after_a_start(share: float, after_start: int, later: int):
    retry = RetryBudget(share, 10, 0)

    def retries(requests: int) -> int:
        """How many of the requests are retried; each wants to be."""
        return sum(earned(retry, 1).pause_s(GONE, 1.0) is not None for _ in range(requests))

    assert retries(10) == after_start
    assert retries(1_000) == pytest.approx(later, abs=2)


def test_the_failures_of_one_tenant_leave_others_the_retries_that_these_have_earned():
    retry, retried, rng = RetryBudget(0.2, 10, 0), Counter[str](), random.Random(1)
    failed = Counter[str]()
    for _ in range(20_000):
        tenant = "b" if rng.random() < 0.02 else "a"
        retry.count_request(tenant)
        if tenant == "a" or rng.random() < 0.1:
            failed[tenant] += 1
            retried[tenant] += retry.pause_s(GONE, 1.0, tenant) is not None
    assert retried["b"] == failed["b"] > 20
    assert retried["a"] == pytest.approx(0.2 * failed["a"] + 10, abs=2)
