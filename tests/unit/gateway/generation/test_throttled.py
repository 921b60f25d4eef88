"""Replicas that throttle: calls go to another one, and come back when their delay is over."""

from __future__ import annotations

import asyncio
import math

import pytest

from services.runtime.errors import Exhausted, ShareUsed
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import RETRY, Scene, calls, play, says, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, started_fleet

pytestmark = pytest.mark.paused


@pytest.mark.parametrize("models", [{}, {"other": says("other")}], ids=["alone", "before another model"])
def test_a_call_to_a_throttled_replica_is_repeated_at_another_and_not_at_the_same(models: dict[str, ScriptedLlm]):
    busy, idle = ScriptedLlm(too_busy()), says("idle")
    scene = play(policies={"retry": RETRY}, m=[busy, idle], **models)
    assert (scene.words, scene.decisions) == ("idle", [("retry", "started")])
    assert calls(busy, idle, *models.values()) == [1, 1, *len(models) * [0]]
    assert scene.report.prompts == 1  # the replica that refused has read nothing


async def test_replicas_that_all_throttle_are_asked_once_each_until_the_first_may_be_asked_again():
    """They may share one account at their provider."""
    busy = [ScriptedLlm(Exhausted("busy", retry_delay_s=delay_s)) for delay_s in (60, 30, 5)]
    behind = started_fleet(loop_clock, m=busy)
    refused = [(await Scene(behind).run()).error for _ in range(3)]
    assert calls(*busy) == [1, 1, 1]
    assert all(isinstance(error, Exhausted) and 4.9 < error.retry_delay_s < 5.6 for error in refused)


@pytest.mark.parametrize(
    ("error", "order", "share"),
    [
        (too_busy(), {}, 0.001),
        (too_busy(), {"single_attempt": True}, 1),
        (ShareUsed("enough", retry_delay_s=60), {}, 1),
    ],
    ids=["no budget", "a single attempt", "the tenant's share"],
)
def test_a_throttled_call_is_not_repeated(error: Exhausted, order: dict[str, object], share: float):
    busy = [ScriptedLlm(error), ScriptedLlm(error)]
    scene = play(order, policies={"retry": {"max_share": share, "burst": 1}}, m=busy)
    assert sum(calls(*busy)) == 1
    assert isinstance(scene.error, Exhausted)
    assert scene.error.retry_delay_s == (60 if isinstance(error, ShareUsed) else 1)


async def test_a_caller_that_retries_after_a_throttled_backends_delay_is_not_refused():
    busy = ScriptedLlm(scripts=[[too_busy()], [finish("well")]])
    behind = fleet(loop_clock, m=busy)
    refused = (await Scene(behind).run()).error
    assert 3 <= refused.retry_delay_s < 3.5
    await asyncio.sleep(math.ceil(refused.retry_delay_s * 1000) / 1000)  # the delay that it was given
    assert (await Scene(behind).run()).words == "well"
