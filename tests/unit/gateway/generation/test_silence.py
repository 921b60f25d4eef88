"""Backends that accept calls and say nothing: which policy notices, and which backend gets a chance in time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hedgerow.router.v1 import router_pb2
from services.gateway.policies.slot import SlotRequest
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, TooLate, Unavailable
from services.runtime.routing import Latency, Model, Tier
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import HEDGE, RETRY, Scene, play, says
from tests.unit.gateway.scripted import ScriptedLlm, fleet

pytestmark = pytest.mark.paused
OFF = {"hedge": {"mode": "off"}}


async def ask(behind: Fleet, tenant: str = "acme", budget_s: float = 1.0, **order: object) -> Scene:
    deadline = Deadline.after(budget_s, loop_clock)
    return await Scene(behind, deadline=deadline, slot_request=SlotRequest(0, tenant, 1.0, deadline), **order).run()


def outcomes(scene: Scene) -> list[int]:
    return [seen.outcome for seen in scene.observed]


HEDGED = [("hedge", "started"), ("hedge", "won")]


@pytest.mark.parametrize(
    ("models", "budget_s", "policies", "decisions", "took_s"),
    [
        (2, 1.0, OFF, [("fallback", "started")], 0.6),
        (1, 1.0, OFF, [("retry", "started")], 0.6),
        (1, 1.0, {"hedge": {"mode": "fixed", "delay_ms": 590, "max_share": 1}}, HEDGED, 0.59),
        (2, 60.0, {**OFF, "breaker": {"slow_ms": 5_000}}, [("fallback", "started")], 5.0),
    ],
    ids=["another model", "another replica", "a second call that starts late", "much time, and slow at the latest"],
)
def test_the_first_victims_of_silence_get_another_answer_within_their_budget(
    models: int, budget_s: float, policies: dict[str, Any], decisions: list[tuple[str, str]], took_s: float
):
    silent, well = ScriptedLlm(None), says("well", 0.1)
    llms = {"m": [silent, well]} if models == 1 else {"m": silent, "well": well}
    scene = play({"budget_s": budget_s}, policies=policies, warm_up=5, **llms)
    assert (scene.words, scene.decisions) == ("well", decisions)
    assert scene.took_s == pytest.approx(took_s + 0.1 + 0.01)
    assert silent.calls[0].closed
    given_up = "lost" if decisions == HEDGED else "late"
    assert [call.outcome for call in scene.report.calls] == [given_up, "ok"]


def test_time_is_shared_among_silent_replicas_and_the_next_model():
    silent, well = [ScriptedLlm(None), ScriptedLlm(None)], says("well", 0.05)
    policies = {**OFF, "expected": {"first_text_ms": 100}}
    scene = play({"budget_s": 1.0}, policies=policies, warm_up=5, m=silent, well=well)
    assert scene.words == "well"
    assert scene.took_s == pytest.approx(0.6 + 0.6 * 0.4 + 0.05 + 0.01)


def test_while_little_is_known_a_silent_replica_is_hedged_when_the_expected_time_is_over():
    silent, well = ScriptedLlm(None), says("well", 0.1)
    policies = {"hedge": {"max_share": 1}, "expected": {"first_text_ms": 200}}
    scene = play({"budget_s": 10.0}, policies=policies, m=[silent, well])
    assert scene.words == "well"
    assert scene.took_s == pytest.approx(0.2 + 0.1 + 0.01)
    assert "(the expected first-token time)" in scene.report.decisions[0].reason


@pytest.mark.parametrize("llms", [{"silent": ScriptedLlm(None), "well": says("well")}, {"silent": ScriptedLlm(None)}])
async def test_a_silent_model_opens_its_breaker_and_is_reported_to_the_router(llms):
    behind = fleet(loop_clock, OFF, **llms)
    for _ in range(5):
        scene = await ask(behind)
        assert outcomes(scene)[0] == router_pb2.OBSERVED_OUTCOME_FAILED
    assert behind.pools["silent"].is_open()
    refused = await ask(behind)
    assert refused.decisions[0] == ("breaker", "refused")
    assert refused.took_s < 0.1
    assert len(llms["silent"].calls) == 5


async def test_silence_shrinks_the_limit():
    limit = {"algorithm": "aimd", "initial": 50}
    policies = {**OFF, "limit": limit, "breaker": {"in_a_row": 1_000, "min_calls": 1_000}}
    behind = fleet(loop_clock, policies, m=ScriptedLlm(None))
    for _ in range(20):
        await asyncio.gather(*(ask(behind, budget_s=1.2) for _ in range(10)))
    assert behind.pools["m"].limiter._limit.value == 10


async def test_a_call_that_was_given_less_than_the_model_usually_needs_says_nothing():
    behind = fleet(loop_clock, OFF, m=says("m", 0.2))
    for _ in range(30):
        assert (await ask(behind)).words == "m"
    for _ in range(50):
        scene = await ask(behind, budget_s=0.1)
        assert isinstance(scene.error, TooLate)
        assert router_pb2.OBSERVED_OUTCOME_FAILED not in outcomes(scene)
    assert not behind.pools["m"].is_open()


async def test_a_client_that_leaves_before_the_first_text_is_no_sample_of_the_model():
    behind = fleet(loop_clock, OFF, m=ScriptedLlm(None))
    for _ in range(50):
        asked = asyncio.create_task(ask(behind))
        await asyncio.sleep(0.5)
        asked.cancel()
        await asyncio.wait({asked})
    assert not behind.pools["m"].is_open()
    assert behind.pools["m"].limiter.in_flight == 0


async def test_a_model_that_usually_needs_most_of_the_time_is_not_given_up_before():
    slow = says("slow", 0.75)
    behind = fleet(loop_clock, OFF, slow=slow, other=says("other", 0.2))
    for _ in range(30):
        assert (await ask(behind, budget_s=10.0)).words == "slow"
    assert (await ask(behind)).words == "slow"


def test_a_call_is_not_given_up_for_a_model_that_would_need_more_time_than_is_left():
    policies = {**OFF, "expected": {"first_text_ms": 500}}
    assert play({"budget_s": 1.0}, policies=policies, m=says("m", 0.8), other=says("other", 0.1)).words == "m"


async def test_a_call_is_not_given_up_for_a_model_whose_breaker_is_open():
    policies = {**OFF, "breaker": {"min_calls": 1, "failure_rate": 0.01, "open_ms": 60_000}}
    behind = fleet(loop_clock, policies, gone=ScriptedLlm(Unavailable("gone")), m=says("m", 0.8))
    assert (await ask(behind)).words == "m"
    assert (await ask(behind, models=("m", "gone"))).words == "m"


@pytest.mark.parametrize(
    ("replicas", "policies", "requests_before", "used_after_s"),
    [(2, OFF, 0, None), (2, OFF, 5, 0.3), (3, {"hedge": HEDGE}, 50, None)],
    ids=["no retry is left", "no retry is left by then", "a hedged call is not retried"],
)
async def test_a_call_is_not_given_up_for_a_replica_that_may_not_be_asked(
    replicas: int, policies: dict[str, Any], requests_before: int, used_after_s: float | None
):
    behind = fleet(loop_clock, policies, m=[says("m", 0.8) for _ in range(replicas)])
    for _ in range(requests_before):
        behind.count_request()
    if used_after_s:
        asyncio.get_running_loop().call_later(used_after_s, behind.retry.spend)
    scene = await ask(behind)
    assert (scene.words, scene.took_s) == ("m", pytest.approx(0.8 + 0.01))


def test_the_last_model_that_may_be_asked_has_all_of_the_time():
    gone = ScriptedLlm(Unavailable("gone"))
    assert play({"budget_s": 1.0}, policies=OFF, a=gone, b=gone, c=says("c", 0.8), d=says("d")).words == "c"


def test_a_single_attempt_has_all_of_the_time():
    scene = play({"budget_s": 1.0, "single_attempt": True}, policies=OFF, m=says("m", 0.8), other=says("other"))
    assert (scene.words, scene.decisions) == ("m", [])


class Poisoned(ScriptedLlm):
    """Breaks on requests of one tenant, and answers all others."""

    def generate(self, request, timeout_s, metadata):
        poison = request.messages[-1].content == "poison"
        self._scripts = [[Unavailable("gone")]] if poison else [says("well", 0.05)._scripts[0]]
        return super().generate(request, timeout_s, metadata)


async def test_failures_of_one_tenant_keep_no_other_tenant_away_and_are_not_reported_to_the_router():
    behind = fleet(loop_clock, OFF, m=Poisoned())
    asked = Scene(behind).job.request
    asked.messages[-1].content = "poison"
    for number in range(40):
        if number % 5 == 0:
            assert (await ask(behind, "b")).words == "well"
        hostile = await ask(behind, "a", request=asked)
        assert outcomes(hostile) == []
    assert behind.pools["m"].is_open("a")
    assert not behind.pools["m"].is_open("b")


async def test_refusals_of_a_model_do_not_hide_its_failures():
    behind = fleet(loop_clock, {**OFF, "retry": {**RETRY, "max_share": 0}}, m=ScriptedLlm(Unavailable("gone")))
    replica = behind.pools["m"].replicas[0]
    gone, picky = replica.llm, ScriptedLlm(InvalidInput("messages", "short", "long"))
    for _ in range(5):
        replica.llm = gone
        await ask(behind, "b")
        replica.llm = picky
        await ask(behind, "a")
    assert behind.pools["m"].is_open("b")


def test_a_gateway_takes_over_what_the_router_knows_of_a_model():
    behind = fleet(settings={"expected": {"first_text_ms": 300}}, m=says("m"))
    usual = behind.pools["m"].baseline
    for ttft, expected_s in (
        (Latency(40, 40, 40), 0.3),
        (Latency(900, 900, 900), 0.9),
        (Latency(20, 50, 90, samples=500), 0.05),
        (Latency(20, 50, 90, samples=3), 0.3),
    ):
        behind.expect(Model("m", Tier.FAST, 2048, 1, 1, ttft, ttft))
        assert usual.needs_s() == pytest.approx(expected_s)
