"""The metrics of an answer: bounds of histograms, and latency targets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from prometheus_client import REGISTRY

import services.audio.metrics
import services.gateway.http.app  # noqa: F401  # with all that measures in a gateway
from services.gateway.answer.metrics import Targets
from services.gateway.settings.answer_time import TargetSettings
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.scripted import ScriptedLlm, finish

LONGEST_BUDGET_S = 120


@pytest.mark.parametrize(
    "name",
    [
        *("hedgerow_stage_seconds", "hedgerow_ttft_seconds", "hedgerow_usable_seconds", "hedgerow_total_seconds"),
        *("hedgerow_rpc_seconds", "hedgerow_http_seconds", "hedgerow_tool_seconds", "hedgerow_limiter_wait_seconds"),
        "hedgerow_audio_wait_seconds",
    ],
)
def test_histograms_of_times_reach_120_s_and_from_5_s_on_no_bound_is_over_twice_the_one_before(name: str):
    *bounds, last = REGISTRY._names_to_collectors[name]._upper_bounds  # type: ignore[attr-defined]
    assert (bounds[-1], last) == (LONGEST_BUDGET_S, float("inf"))
    assert all(higher <= 2 * lower for lower, higher in pairwise(bounds) if lower >= 5)


def stages(outcome: str) -> float:
    return REGISTRY.get_sample_value("hedgerow_stage_seconds_count", {"stage": "llm", "outcome": outcome}) or 0


@pytest.mark.paused
async def test_the_stages_of_a_request_that_ends_with_an_error_are_counted_as_those_of_an_answer_are():
    before = stages("failed"), stages("ok")
    with pytest.raises(Unavailable):
        await Scene(small=ScriptedLlm(Unavailable("gone")), large=ScriptedLlm(Unavailable("gone"))).final()
    assert (stages("failed"), stages("ok")) == (before[0] + 1, before[1])
    await Scene(small=ScriptedLlm(finish("Paris.")), large=ScriptedLlm()).final()
    assert (stages("failed"), stages("ok")) == (before[0] + 1, before[1] + 1)


def test_a_time_is_named_at_the_highest_percentile_it_is_beyond():
    targets = Targets({"llm": TargetSettings(p50_ms=100, p95_ms=500, p99_ms=1_000)})
    assert list(targets.count_missed({"llm": 80})) == []
    assert [(name, percentile) for name, percentile, _ in targets.count_missed({"llm": 600})] == [("llm", "p95")]
    ((_, percentile, words),) = targets.count_missed({"llm": 1_200})
    assert (percentile, words) == ("p99", "1200 ms, p99 target 1000 ms")


def test_a_stage_without_a_target_misses_none():
    targets = Targets({"ttft": TargetSettings(p99_ms=100)})
    assert list(targets.count_missed({"llm": 5_000, "ttft": 99})) == []
    assert not Targets({})
