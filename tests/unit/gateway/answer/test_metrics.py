"""The metrics of an answer: bounds of histograms, and latency targets."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import AsyncMock

import pytest
from prometheus_client import REGISTRY

import services.audio.metrics
import services.gateway.http.app  # noqa: F401  # with all that measures in a gateway
from services.gateway.answer.metrics import Targets
from services.gateway.settings.answer_time import TargetSettings
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import Scene
from tests.unit.gateway.api.test_ended_keys import BATCH, CALL, gateway
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


def total(name: str, **labels: str) -> float:
    """Of all series of this sample with these labels."""
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def stages(outcome: str) -> float:
    return total("hedgerow_stage_seconds_count", stage="llm", outcome=outcome)


@pytest.mark.paused
async def test_the_stages_of_a_request_that_ends_with_an_error_are_counted_as_those_of_an_answer_are():
    before = stages("failed"), stages("ok")
    with pytest.raises(Unavailable):
        await Scene(small=ScriptedLlm(Unavailable("gone")), large=ScriptedLlm(Unavailable("gone"))).final()
    assert (stages("failed"), stages("ok")) == (before[0] + 1, before[1])
    await Scene(small=ScriptedLlm(finish("Paris.")), large=ScriptedLlm()).final()
    assert (stages("failed"), stages("ok")) == (before[0] + 1, before[1] + 1)


@pytest.mark.paused
async def test_the_times_of_a_batch_are_no_latencies_of_its_model():
    """Its items wait until no other request needs a slot."""
    times = ("hedgerow_ttft_seconds_count", "hedgerow_usable_seconds_count", "hedgerow_total_seconds_count")

    def counts() -> list[float]:
        return [total(name, model="m") for name in (*times, "hedgerow_answers_total")]

    before = counts()
    with gateway(ScriptedLlm(finish("Yes."))) as served:
        results = [result async for result in served.GenerateBatch(BATCH, CALL)]
        assert counts() == [*before[:3], before[3] + len(results)]
        await served.Generate(BATCH.requests[0], CALL, AsyncMock())
    assert counts() == [*(count + 1 for count in before[:3]), before[3] + len(results) + 1]


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
