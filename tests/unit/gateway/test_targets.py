from __future__ import annotations

from services.gateway.answer.metrics import Targets
from services.gateway.settings.budgets import TargetSettings


def test_a_time_is_named_at_the_highest_percentile_it_is_beyond():
    targets = Targets({"llm": TargetSettings(p50_ms=100, p95_ms=500, p99_ms=1_000)})
    assert list(targets.missed({"llm": 80})) == []
    assert [(name, percentile) for name, percentile, _ in targets.missed({"llm": 600})] == [("llm", "p95")]
    ((_, percentile, words),) = targets.missed({"llm": 1_200})
    assert (percentile, words) == ("p99", "1200 ms, p99 target 1000 ms")


def test_a_stage_without_a_target_misses_none():
    targets = Targets({"ttft": TargetSettings(p99_ms=100)})
    assert list(targets.missed({"llm": 5_000, "ttft": 99})) == []
    assert not Targets({})
