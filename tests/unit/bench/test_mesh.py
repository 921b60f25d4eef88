"""The failover bench's summary of its calls."""

from __future__ import annotations

from bench.load import Outcome, Sample
from bench.mesh import failover


def sample(at_s: float, outcome: Outcome, total_s: float) -> Sample:
    return Sample("", at_s, 0, total_s, outcome)


def test_a_call_that_failed_at_once_as_the_region_died_is_the_slowest_one() -> None:
    answered = [sample(number / 20, Outcome.OK, 0.4) for number in range(int(failover.SECONDS * 20))]
    assert failover._summary(answered)["slowest_ms"] == 400
    failed = [sample(failover.KILL_AT_S, Outcome.FAILED, 0.001)] * 2
    result = failover._summary([*answered, *failed])
    assert (result["failed_calls"], result["slowest_ms"]) == (2, float("inf"))
    assert result["total_ms"]["during"]["p99"] == float("inf")
    assert result["total_ms"]["after"]["p99"] == 400
