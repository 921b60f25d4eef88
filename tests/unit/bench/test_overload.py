"""Requests of the overload bench, and its summary of the answers."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.load import Outcome, Sample
from bench.overload import CLASSES, goodput_rps, mixed, p99_ms, recovery_s, summary


def samples_at(times_s: list[float], outcome: Outcome = Outcome.OK, total_s: float = 0.1) -> list[Sample]:
    return [Sample("normal", at_s, 0, total_s, outcome) for at_s in times_s]


def every(step_s: float, start_s: float, end_s: float) -> list[float]:
    return [start_s + number * step_s for number in range(round((end_s - start_s) / step_s))]


def test_all_classes_come_by_their_shares_and_no_question_twice() -> None:
    arrivals = mixed(500, 20, seed=1)
    counts = Counter(each.label for each in arrivals)
    for each in CLASSES:
        assert counts[each.name] / len(arrivals) == pytest.approx(each.share, abs=0.02)
    assert len({each.request for each in arrivals}) == len(arrivals)
    first, again = ([(each.at_s, each.label) for each in mixed(100, 5, seed=3)] for _ in range(2))
    assert first == again


def test_goodput_counts_answers_by_when_they_came() -> None:
    late = samples_at([9.95], total_s=0.1)
    refused = samples_at([5.0], Outcome.REFUSED)
    assert goodput_rps(samples_at(every(0.1, 0, 9.95)) + late + refused, 10) == pytest.approx(10, rel=0.02)


def test_a_level_keeps_the_refused_out_of_the_latencies_of_the_admitted() -> None:
    level = samples_at(every(0.1, 0, 10), total_s=0.2) + samples_at(every(0.1, 0, 10), Outcome.REFUSED, 0.004)
    result = summary(2, level, 10, capacity_rps=10)
    assert result["admitted_p99_ms"] == 200
    assert result["rejection_p99_ms"] == 4
    assert result["rejected"] == {"critical": 0, "high": 0, "normal": 100, "low": 0}


def test_a_failed_answer_counts_among_the_admitted() -> None:
    result = summary(1, samples_at([1.0, 2.0]) + samples_at([3.0], Outcome.TIMEOUT, 5), 10, capacity_rps=10)
    assert result["failed"] == 1
    assert float(str(result["admitted_p99_ms"])) > 4_000


def test_an_answer_that_failed_at_once_was_not_a_fast_one() -> None:
    level = samples_at(every(0.1, 0, 10), total_s=2) + samples_at(every(0.1, 0, 10), Outcome.FAILED, 0.0)
    assert p99_ms(level) == float("inf")
    assert summary(2, level, 10, capacity_rps=10)["admitted_p99_ms"] == float("inf")


def test_recovery_is_the_first_window_without_a_rejection_and_fast_again() -> None:
    refused, slow = samples_at([20.4], Outcome.REFUSED), samples_at(every(0.1, 20.5, 22), total_s=1)
    fast = samples_at(every(0.1, 22, 35))
    assert recovery_s(refused + slow + fast, 20, normal_p99_ms=150) == pytest.approx(2, abs=0.1)
    assert recovery_s(samples_at(every(0.1, 20, 35), total_s=1), 20, normal_p99_ms=150) is None
