"""The policies around a generation, one by one and in pairs: how many calls were made, and which one answered."""

from __future__ import annotations

import asyncio
import random

import pytest

from services.gateway.errors import ModelUnavailable
from services.gateway.generation.stack import make_stack
from services.gateway.policies.breaker import State
from services.gateway.policies.slot import Shed, SlotRequest
from services.gateway.upstream.call_errors import ModelNotAtProvider
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import (
    Exhausted,
    Faulty,
    InvalidInput,
    ServiceError,
    ShareUsed,
    Starting,
    TooLate,
    Unavailable,
)
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import ALWAYS_OPEN, GONE, HEDGE, RETRY, Scene, calls, play, says, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet

pytestmark = pytest.mark.paused
ONE_SLOT = {"algorithm": "fixed", "initial": 1, "queue_ms": 10_000}


def test_a_request_for_a_single_attempt_is_neither_hedged_nor_retried_nor_given_to_another_model():
    slow = [says("slow", 5.0), says("slow", 5.0)]
    assert play({"single_attempt": True}, policies={"hedge": HEDGE}, m=slow).decisions == []
    broken, other = ScriptedLlm(GONE), says("other")
    scene = play({"single_attempt": True}, policies={"retry": RETRY}, m=broken, other=other)
    assert scene.error.message == GONE.message
    assert calls(broken, other) == [1, 0]


def test_three_models_are_asked_and_no_more():
    """A provider may be another's only way, and then one fault takes two models."""
    broken, last = [ScriptedLlm(GONE), ScriptedLlm(GONE)], says("last")
    assert play(a=broken[0], b=broken[1], c=last).words == "last"
    broken, last = [ScriptedLlm(GONE) for _ in range(3)], says("last")
    scene = play(a=broken[0], b=broken[1], c=broken[2], d=last)
    assert isinstance(scene.error, ModelUnavailable)
    assert calls(*broken, last) == [1, 1, 1, 0]


async def test_a_model_that_may_not_be_called_takes_no_attempt_from_others():
    broken = {name: ScriptedLlm(GONE) for name in "abcd"}
    behind = fleet(loop_clock, {"breaker": ALWAYS_OPEN}, **broken, e=says("well"))
    for _ in range(2):  # three are asked, and are kept away from then on
        scene = await Scene(behind).run()
    assert scene.words == "well"


def test_a_retry_needs_budget():
    broken = ScriptedLlm(scripts=[[GONE], [finish("well")]])
    scene = play(policies={"retry": {"max_share": 0.2}}, m=broken)
    assert isinstance(scene.error, ModelUnavailable)
    assert calls(broken) == [1]
    broken = ScriptedLlm(scripts=[[GONE], [finish("well")]])
    scene = play(warm_up=5, policies={"retry": {"max_share": 0.2}}, m=broken)
    assert (scene.words, calls(broken)) == ("well", [2])


def test_a_busy_model_is_not_retried_and_another_model_is_asked():
    busy, other = ScriptedLlm(too_busy()), says("other")
    scene = play(policies={"retry": RETRY}, m=busy, other=other)
    assert (scene.words, calls(busy, other)) == ("other", [1, 1])
    assert scene.report.problems == ["busy"]
    assert scene.decisions == [("fallback", "started")]


async def test_a_retry_and_a_breaker_together_make_two_calls_and_then_none():
    broken = ScriptedLlm(GONE)
    behind = fleet(loop_clock, {"retry": RETRY, "breaker": {**ALWAYS_OPEN, "min_calls": 2}}, m=broken)
    await Scene(behind).run()
    assert calls(broken) == [2]
    refused = await Scene(behind).run()
    assert (calls(broken), refused.decisions) == ([2], [("breaker", "refused")])
    assert refused.took_s == 0


async def test_a_late_first_text_gives_way_to_another_model_and_the_rest_of_the_time_is_its_own():
    slow, small = says("slow", 5.0), says("small", 1.0)

    scene = await Scene(fleet(loop_clock, m=slow, small=small), first_text=Deadline.after(0.3, loop_clock)).run()
    assert (scene.words, slow.calls[0].closed) == ("small", True)
    assert scene.report.problems == ["no first text within 300 ms"]


async def waited(behind: Fleet, for_s: float, **order: object) -> Scene:
    """A job whose only slot is taken for so long."""
    slot = await behind.pools["m"].limiter.enter(SlotRequest(0, "other", 1.0, Deadline.never()))
    asyncio.get_running_loop().call_later(for_s, slot.release)
    return await Scene(behind, first_text=Deadline.after(0.3, loop_clock), **order).run()


async def test_a_model_is_not_asked_once_the_time_for_its_first_text_is_over():
    late = says("late")
    scene = await waited(fleet(loop_clock, {"limit": ONE_SLOT}, m=late), 0.5)
    assert (type(scene.error), calls(late), scene.report.unbilled()) == (TooLate, [0], [])


async def test_a_retry_in_the_background_has_its_time_to_first_text_from_its_slot_on():
    broken, well = ScriptedLlm(GONE), says("well", 0.2)
    behind = fleet(loop_clock, {"limit": ONE_SLOT, "retry": RETRY}, m=[broken, well])
    in_background = SlotRequest.background("acme", 1.0, Deadline.after(10.0, loop_clock))
    assert (await waited(behind, 5.0, slot_request=in_background)).words == "well"


async def test_a_retry_that_is_not_made_is_not_reported():
    behind = fleet(loop_clock, {"retry": {**RETRY, "base_ms": 100}}, m=ScriptedLlm(GONE))
    behind.retry._rng = random.Random(0)
    asyncio.get_running_loop().call_later(0.01, behind.pools["m"].replicas[0].breaker.disconnected)
    assert (await Scene(behind).run()).decisions == [("breaker", "refused")]


def test_the_budget_ends_everything():
    slow = says("slow", 5.0)
    scene = play({"budget_s": 1.0}, m=slow)
    assert isinstance(scene.error, TooLate)
    assert scene.took_s == pytest.approx(1.0)
    assert slow.calls[0].closed


async def test_a_full_gate_sheds_and_no_other_model_is_burdened():
    behind = fleet(
        loop_clock, {"limit": {"algorithm": "fixed", "initial": 1, "queue": 0}}, m=says("a", 1.0), other=says("b")
    )
    first, second = Scene(behind), Scene(behind)
    running = asyncio.create_task(first.run())
    await asyncio.sleep(0.1)
    reader = make_stack(behind, second.observed.append).read(b"", second.job, 1.0).reader
    with pytest.raises(Shed):
        await reader.take()
    reader.close()
    assert (await running).words == "a"


def test_every_call_is_reported_to_the_router():
    scene = play(policies={"retry": RETRY}, warm_up=5, m=ScriptedLlm(scripts=[[GONE], [0.3, finish("well")]]))
    assert [seen.outcome for seen in scene.observed] == [3, 1]
    assert scene.observed[1].ttft_ms == pytest.approx(300)


async def test_a_model_that_is_set_up_wrongly_fails_at_once_and_always_says_why():
    wrong = ScriptedLlm(ModelNotAtProvider("m: the provider does not know the model x"))
    behind = fleet(loop_clock, {"retry": RETRY, "breaker": ALWAYS_OPEN}, m=wrong)
    for number in (1, 2):
        scene = await Scene(behind).run()
        assert isinstance(scene.error, ModelNotAtProvider)
        assert (calls(wrong), scene.decisions, len(scene.observed)) == ([number], [], 1)
    assert (await Scene(fleet(loop_clock, m=wrong, other=says("other"))).run()).words == "other"


async def test_a_replica_that_is_set_up_wrongly_is_left_to_those_that_stand_in_for_it():
    wrong, well = ScriptedLlm(ModelNotAtProvider("m: the provider does not know the model x")), says("well")
    behind = fleet(loop_clock, {"retry": RETRY, "breaker": ALWAYS_OPEN}, m=[wrong, well])
    assert [(await Scene(behind).run()).words for _ in range(4)] == ["well"] * 4
    assert calls(wrong) == [1]


def test_a_request_that_broke_one_engine_is_sent_to_no_other():
    broken, replica, other = ScriptedLlm(Faulty("m: INTERNAL: oh")), says("replica"), says("other")
    scene = play(warm_up=100, policies={"retry": RETRY}, m=[broken, replica], n=other)
    assert isinstance(scene.error, Faulty)
    assert calls(broken, replica, other) == [1, 0, 0]
    assert scene.decisions == []


@pytest.mark.parametrize(
    ("first", "error"),
    [(GONE, ModelUnavailable), (Exhausted("busy", retry_delay_s=3), Exhausted), (TooLate("late"), TooLate)],
)
def test_a_refusal_by_a_fallback_model_is_not_the_error_of_the_request(first: ServiceError, error: type[ServiceError]):
    of_another_api = ScriptedLlm(InvalidInput("reasoning_effort", "no such field of model b", "high"))
    scene = play(a=ScriptedLlm(first), b=of_another_api)
    assert type(scene.error) is error
    assert calls(of_another_api) == [1]
    scene = play(a=ScriptedLlm(first), b=of_another_api, c=says("Me."))
    assert scene.words == "Me."


@pytest.mark.parametrize("first", [GONE, Exhausted("busy", retry_delay_s=3)])
def test_the_error_of_several_answers_is_reported_where_no_model_gives_them(first: ServiceError):
    of_another_api = ScriptedLlm(InvalidInput("n", "no such field of model b", 2))
    scene = play(a=ScriptedLlm(first), b=of_another_api)
    assert isinstance(scene.error, InvalidInput)
    assert scene.error.metadata["field"] == "n"
    assert isinstance(play(a=ScriptedLlm(TooLate("late")), b=of_another_api).error, TooLate)


@pytest.mark.parametrize(
    ("error", "opens", "goes_on", "met"),
    [
        (Faulty("m: INTERNAL: oh"), True, False, Faulty),
        (GONE, True, True, ModelUnavailable),
        (Starting("m: starting"), False, True, Unavailable),
        (InvalidInput("messages", "short", "long"), False, False, InvalidInput),
        (ShareUsed("enough", retry_delay_s=60), False, True, Exhausted),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, ServiceError) else "",
)
def test_only_a_models_own_failure_opens_its_breaker_and_is_observed(
    error: ServiceError, opens: bool, goes_on: bool, met: type[ServiceError]
):
    policies = {"breaker": ALWAYS_OPEN}
    alone = play(policies=policies, m=ScriptedLlm(error))
    assert (alone.fleet.pools["m"].replicas[0].breaker.state is State.OPEN) is opens
    assert bool(alone.observed) is opens
    assert isinstance(alone.error, met)
    assert (alone.error.retry_delay_s == 60) is isinstance(error, ShareUsed)
    assert play(policies=policies, m=ScriptedLlm(error), other=says("other")).words == ("other" if goes_on else "")
