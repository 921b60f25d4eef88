"""Requests of the comparison, and its summary of the answers."""

from __future__ import annotations

import pytest

from bench.jagged import Record, ask_around
from bench.jagged.engine import Tally
from bench.load import Outcome, Sample


def a_sample(total_s: float = 0.2, outcome: Outcome = Outcome.OK, at_s: float = 0, **more: bool) -> Sample:
    return Sample("", at_s, 0, total_s, outcome, **more)


def test_repeats_are_as_many_as_said_and_were_asked_before() -> None:
    asked, repeats = set[str](), 0
    questions = ask_around(100, 60, 0.4, seed=1)
    assert questions == ask_around(100, 60, 0.4, seed=1) != ask_around(100, 60, 0.4, seed=2)
    for question in questions:
        repeats += question.text in asked
        asked.add(question.text)
    assert repeats / len(questions) == pytest.approx(0.4, abs=0.02)


def test_a_call_that_timed_out_counts_with_its_time() -> None:
    record = Record()
    record.add([a_sample() for _ in range(98)] + [a_sample(8, Outcome.TIMEOUT) for _ in range(2)], Tally(started=100))
    summary = record.summary()
    assert summary["timeout_rate"] == 0.02
    assert summary["total_ms"] == {"p50": 200, "p95": 200, "p99": 8_000, "p999": 8_000}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED])
def test_a_call_that_failed_at_once_was_not_a_fast_one(outcome: Outcome) -> None:
    record = Record()
    record.add([a_sample() for _ in range(98)] + [a_sample(0.001, outcome) for _ in range(2)], Tally(started=100))
    summary = record.summary()
    assert summary["total_ms"] == {"p50": 200, "p95": 200, "p99": float("inf"), "p999": float("inf")}


def test_calls_are_extra_beyond_one_for_each_answer_that_had_to_be_generated() -> None:
    record = Record()
    samples = [a_sample(hit=True)] * 4 + [a_sample(shared=True)] + [a_sample()] * 5
    record.add(samples, Tally(started=6, prompt_tokens=6_000_000, completion_tokens=1_000_000))
    summary = record.summary()
    assert (summary["calls_per_request"], summary["extra_calls_share"]) == (0.6, 0.1)
    assert summary["cost_usd_per_1000"] == 200
    assert record.hit_rate == 0.4
