"""The policies around a generation, one by one and in pairs: how many calls were made, and which one answered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.errors import ModelUnavailable
from services.gateway.generation import hedging
from services.gateway.generation.hedging import FirstTokenTimeout
from services.gateway.generation.job import Attempt, Placed
from services.gateway.generation.stack import make_stack
from services.gateway.policies.breaker import State
from services.gateway.policies.ticket import Shed, Ticket
from services.gateway.upstream.balance import Locality
from services.gateway.upstream.fleet import Fleet, Pool
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
from tests.clock import loop_clock, on_paused_loop
from tests.unit.gateway.generation.scene import GONE, HEDGE, RETRY, Scene, calls, play, says, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text

ALWAYS_OPEN = {"min_calls": 1, "failure_rate": 0.01}  # one failure opens it


def test_a_late_first_text_is_hedged_and_the_first_text_wins():
    slow, quick = says("slow", 5.0), says("quick", 0.2)
    scene = play(policies={"hedge": HEDGE}, m=[slow, quick])
    assert calls(slow, quick) == [1, 1]
    assert (scene.words, slow.calls[0].closed) == ("quick", True)
    assert scene.decisions == [("hedge", "started"), ("hedge", "won")]
    assert scene.report.prompts == 2
    assert scene.took_s == pytest.approx(0.1 + 0.2 + 0.01)


def test_a_hedge_that_loses_is_cancelled():
    steady = [says("a", 0.15), says("b", 0.15)]
    scene = play(policies={"hedge": HEDGE}, m=steady)
    assert calls(*steady) == [1, 1]
    assert (scene.words, scene.decisions) == ("a", [("hedge", "started")])
    assert steady[1].calls[0].messages == []


def test_a_first_text_in_time_is_not_hedged():
    prompt = [says("a", 0.05), says("b", 0.05)]
    assert play(policies={"hedge": HEDGE}, m=prompt).decisions == []
    assert sum(calls(*prompt)) == 1


@pytest.mark.parametrize("after_s", [0.1, 0.1 - 1e-9, 0.1 + 1e-9])
def test_a_second_call_that_is_not_needed_in_the_moment_it_begins_keeps_no_place(after_s: float):
    both = [says("a", after_s), says("b", 1.0)]  # `Scene` looks for places that leak
    assert play(policies={"hedge": HEDGE}, m=both).words == "a"


def test_one_replica_is_never_hedged():
    slow = says("slow", 5.0)
    assert play(policies={"hedge": HEDGE}, m=slow).words == "slow"
    assert calls(slow) == [1]


def test_the_next_model_takes_the_second_call_only_where_that_is_wanted():
    for across_models, words in ((True, "other"), (False, "slow")):
        slow, other = says("slow", 5.0), says("other", 0.2)
        scene = play(policies={"hedge": {**HEDGE, "across_models": across_models}}, m=slow, other=other)
        assert (scene.words, scene.report.model) == (words, "other" if across_models else "m")


def test_tied_calls_start_together():
    both = [says("a", 0.2), says("b", 0.1)]
    scene = play(policies={"hedge": {"mode": "tied", "max_share": 1}}, m=both)
    assert (scene.words, calls(*both), scene.took_s) == ("b", [1, 1], pytest.approx(0.11))


def test_a_request_for_a_single_attempt_is_neither_hedged_nor_retried_nor_given_to_another_model():
    slow = [says("slow", 5.0), says("slow", 5.0)]
    assert play({"once": True}, policies={"hedge": HEDGE}, m=slow).decisions == []
    broken, other = ScriptedLlm(GONE), says("other")
    scene = play({"once": True}, policies={"retry": RETRY}, m=broken, other=other)
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


def test_who_may_not_be_called_takes_no_try_from_others():
    async def main() -> Scene:
        broken = {name: ScriptedLlm(GONE) for name in "abcd"}
        behind = fleet(loop_clock, {"breaker": ALWAYS_OPEN}, **broken, e=says("well"))
        for _ in range(2):  # three are asked, and are kept away from then on
            scene = await Scene(behind).run()
        return scene

    assert on_paused_loop(main()).words == "well"


def test_the_second_call_needs_budget():
    slow = [says("a", 1.0), says("b", 1.0)]
    scene = play(policies={"hedge": {**HEDGE, "max_share": 0.05}}, m=slow)
    assert scene.decisions == [("hedge", "skipped")]
    assert "budget" in scene.report.decisions[0].reason
    slow = [says("a", 1.0), says("b", 1.0)]
    assert ("hedge", "started") in play(warm_up=20, policies={"hedge": {**HEDGE, "max_share": 0.05}}, m=slow).decisions


def test_under_load_there_is_no_second_call():
    async def main() -> Scene:
        slow = [says("a", 1.0), says("b", 1.0)]
        behind = fleet(loop_clock, {"hedge": HEDGE, "limit": {"algorithm": "fixed", "initial": 1, "queue": 0}}, m=slow)
        return await Scene(behind).run()

    assert on_paused_loop(main()).decisions == [("hedge", "skipped")]


def test_an_unavailable_replica_is_retried_on_another():
    broken, well = ScriptedLlm(GONE), says("well")
    scene = play(policies={"retry": RETRY}, m=[broken, well])
    assert (scene.words, scene.decisions) == ("well", [("retry", "started")])
    assert calls(broken, well) == [1, 1]


def test_a_retry_needs_budget():
    broken = ScriptedLlm(scripts=[[GONE], [finish("well")]])
    scene = play(policies={"retry": {"max_share": 0.2}}, m=broken)
    assert isinstance(scene.error, ModelUnavailable)
    assert calls(broken) == [1]
    broken = ScriptedLlm(scripts=[[GONE], [finish("well")]])
    scene = play(warm_up=5, policies={"retry": {"max_share": 0.2}}, m=broken)
    assert (scene.words, calls(broken)) == ("well", [2])


def test_what_is_busy_is_not_retried_but_another_model_is_asked():
    busy, other = ScriptedLlm(too_busy()), says("other")
    scene = play(policies={"retry": RETRY}, m=busy, other=other)
    assert (scene.words, calls(busy, other)) == ("other", [1, 1])
    assert scene.report.problems == ["busy"]
    assert scene.decisions == [("fallback", "started")]


def test_a_throttled_backend_is_left_alone_for_as_long_as_it_says():
    async def main() -> None:
        busy = ScriptedLlm(too_busy())
        behind = fleet(loop_clock, m=busy)
        assert isinstance((await Scene(behind).run()).error, Exhausted)
        refused = await Scene(behind).run()
        assert 2.9 < refused.error.retry_delay_s < 3.5
        assert calls(busy) == [1]
        await asyncio.sleep(4)
        await Scene(behind).run()
        assert calls(busy) == [2]

    on_paused_loop(main())


def test_who_comes_back_when_a_throttled_backend_said_is_not_refused_for_it():
    async def main() -> None:
        busy = ScriptedLlm(scripts=[[too_busy()], [finish("well")]])
        behind = fleet(loop_clock, m=busy)
        refused = (await Scene(behind).run()).error
        assert 3 <= refused.retry_delay_s < 3.5
        await asyncio.sleep(math.ceil(refused.retry_delay_s * 1000) / 1000)  # the delay that it was given
        assert (await Scene(behind).run()).words == "well"

    on_paused_loop(main())


def test_a_retry_and_a_breaker_together_make_two_calls_and_then_none():
    async def main() -> None:
        broken = ScriptedLlm(GONE)
        behind = fleet(loop_clock, {"retry": RETRY, "breaker": {**ALWAYS_OPEN, "min_calls": 2}}, m=broken)
        await Scene(behind).run()
        assert calls(broken) == [2]
        refused = await Scene(behind).run()
        assert (calls(broken), refused.decisions) == ([2], [("breaker", "refused")])
        assert refused.took_s == 0

    on_paused_loop(main())


def test_an_open_breaker_gives_way_to_the_next_model_without_a_call():
    async def main() -> None:
        broken, other = ScriptedLlm(GONE), says("other")
        behind = fleet(loop_clock, {"breaker": ALWAYS_OPEN}, m=broken, other=other)
        assert (await Scene(behind).run()).words == "other"
        scene = await Scene(behind).run()
        assert (scene.words, calls(broken, other)) == ("other", [1, 2])
        assert scene.decisions == [("breaker", "refused"), ("fallback", "started")]

    on_paused_loop(main())


def test_a_hedge_is_not_made_to_a_replica_whose_breaker_is_open():
    async def main() -> None:
        broken, slow = ScriptedLlm(GONE), says("slow", 1.0)
        behind = fleet(
            loop_clock,
            {"hedge": HEDGE, "retry": RETRY, "breaker": {**ALWAYS_OPEN, "open_ms": 60_000}},
            m=[broken, slow],
        )
        await Scene(behind).run()
        scene = await Scene(behind).run()
        assert (scene.words, scene.decisions) == ("slow", [("hedge", "skipped")])
        assert calls(broken) == [1]

    on_paused_loop(main())


def test_a_hedged_call_that_fails_is_not_retried_too():
    both = [ScriptedLlm(0.2, GONE), ScriptedLlm(0.2, GONE)]
    scene = play(policies={"hedge": HEDGE, "retry": RETRY}, m=both)
    assert isinstance(scene.error, ModelUnavailable)
    assert calls(*both) == [1, 1]


def test_a_late_first_text_gives_way_to_another_model_and_the_rest_of_the_time_is_its_own():
    slow, small = says("slow", 5.0), says("small", 1.0)

    async def main() -> Scene:
        return await Scene(fleet(loop_clock, m=slow, small=small), first_text=Deadline.after(0.3, loop_clock)).run()

    scene = on_paused_loop(main())
    assert (scene.words, slow.calls[0].closed) == ("small", True)
    assert scene.report.problems == ["no first text within 300 ms"]


def test_the_budget_ends_everything():
    slow = says("slow", 5.0)
    scene = play({"budget_s": 1.0}, m=slow)
    assert isinstance(scene.error, TooLate)
    assert scene.took_s == pytest.approx(1.0)
    assert slow.calls[0].closed


def test_a_stream_that_breaks_goes_on_from_its_text_on_another_replica():
    first, second = ScriptedLlm(text("Once upon "), 0.01, GONE), ScriptedLlm(text("a time."), finish())
    scene = play(policies={"retry": RETRY}, m=[first, second])
    assert scene.words == "Once upon a time."
    assert second.requests[-1].prefix == "Once upon "
    assert scene.report.resumed
    assert scene.report.carried_tokens == 1


@pytest.mark.parametrize("policies", [{"retry": {"max_share": 0}}, {"retry": RETRY}])
def test_a_stream_that_breaks_with_nowhere_to_go_says_so(policies):
    lone = ScriptedLlm(text("Once upon "), 0.01, GONE)
    scene = play(policies=policies, m=lone)
    assert (scene.words, scene.error.message, calls(lone)) == ("Once upon ", GONE.message, [1])


def test_a_silent_stream_counts_as_broken():
    silent = ScriptedLlm(text("Once upon "), None)
    scene = play({"budget_s": 60.0}, policies={"stall_ms": 2_000}, m=silent)
    assert isinstance(scene.error, Unavailable)
    assert scene.took_s == pytest.approx(2.0, abs=0.1)
    assert silent.calls[0].closed


@pytest.mark.parametrize(
    ("messages", "seconds"),
    [pytest.param(250, 0.0, id="a burst is read at once"), pytest.param(2_254, 1.0, id="then 2,000 messages a second")],
)
def test_a_model_that_writes_without_pause_is_read_at_a_bounded_rate(messages: int, seconds: float):
    scene = play({"budget_s": 60.0}, m=ScriptedLlm(*[text("a")] * messages, finish()))
    assert (scene.words, scene.error) == ("a" * messages, None)
    assert scene.took_s == pytest.approx(seconds, abs=0.02)


def test_a_silent_stream_goes_on_elsewhere_and_nothing_of_it_comes_twice():
    silent, other = ScriptedLlm(text("Once upon "), None), ScriptedLlm(0.5, text("a time."), finish())
    scene = play({"budget_s": 60.0}, policies={"stall_ms": 2_000, "retry": RETRY}, m=[silent, other])
    assert (scene.words, scene.error) == ("Once upon a time.", None)
    assert scene.decisions == [("failover", "started")]


def in_regions(*priorities: int) -> Callable[[Fleet], None]:
    """Puts the replicas of `m` where they belong."""

    def place(behind: Fleet) -> None:
        for replica, priority in zip(behind.pools["m"].replicas, priorities, strict=True):
            replica.locality = Locality(priority)

    return place


def test_when_two_of_a_region_have_failed_the_next_region_is_asked():
    dead, far = [ScriptedLlm(GONE) for _ in range(3)], says("far")
    scene = play(warm_up=5, policies={"retry": RETRY}, arrange=in_regions(0, 0, 0, 1), m=[*dead, far])
    assert (scene.words, scene.decisions) == ("far", [("retry", "started"), ("retry", "started")])
    assert calls(*dead, far) == [1, 1, 0, 1]


def test_a_stream_whose_region_died_goes_on_in_the_next():
    broken, dead = ScriptedLlm(text("Once upon "), 0.01, GONE), ScriptedLlm(GONE)
    far = ScriptedLlm(text("a time."), finish())
    scene = play(warm_up=5, policies={"retry": RETRY}, arrange=in_regions(0, 0, 1), m=[broken, dead, far])
    assert (scene.words, scene.error) == ("Once upon a time.", None)
    assert scene.decisions == [("failover", "started"), ("failover", "failed"), ("failover", "started")]
    assert scene.report.resumed
    assert far.requests[-1].prefix == "Once upon "


def test_nobody_is_asked_again_who_has_failed_while_it_was_the_second():
    dead = [ScriptedLlm(GONE), ScriptedLlm(GONE)]
    scene = play(warm_up=20, policies={"retry": RETRY}, m=dead)
    assert (scene.error.code, calls(*dead)) == (Unavailable.code, [1, 1])


def test_a_full_gate_sheds_and_no_other_model_is_burdened():
    async def main() -> None:
        behind = fleet(
            loop_clock, {"limit": {"algorithm": "fixed", "initial": 1, "queue": 0}}, m=says("a", 1.0), other=says("b")
        )
        first, second = Scene(behind), Scene(behind)
        running = asyncio.create_task(first.run())
        await asyncio.sleep(0.1)
        reader = make_stack(behind, second.observed.append).read(b"", second.job, 1.0).reader
        with pytest.raises(Shed):
            await reader.take()
        reader.leave()
        assert (await running).words == "a"

    on_paused_loop(main())


def test_every_call_is_told_to_the_router():
    scene = play(policies={"retry": RETRY}, warm_up=5, m=ScriptedLlm(scripts=[[GONE], [0.3, finish("well")]]))
    assert [seen.outcome for seen in scene.observed] == [3, 1]
    assert scene.observed[1].ttft_ms == pytest.approx(300)


delays = st.floats(0.0, 3.0, width=16)
scripts = st.one_of(
    delays.map(lambda pause: [pause, text("x"), pause, finish()]),
    delays.map(lambda pause: [pause, GONE]),
    delays.map(lambda pause: [pause, too_busy()]),
    delays.map(lambda pause: [pause, text("x"), GONE]),
    st.just([None]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(scripts, min_size=1, max_size=6), st.lists(scripts, min_size=1, max_size=6), st.integers(1, 12))
def test_whatever_happens_the_budget_holds_and_extra_calls_stay_within_theirs(one, two, requests):
    async def main() -> None:
        replicas = [ScriptedLlm(scripts=one), ScriptedLlm(scripts=two)]
        share = {"max_share": 0.25}
        behind = fleet(loop_clock, {"hedge": {**HEDGE, **share}, "retry": share, "stall_ms": 500}, m=replicas)
        for _ in range(requests):
            scene = await Scene(behind, budget_s=2.0).run()
            assert scene.took_s <= 2.0 + 1e-6
            assert bool(scene.error) or scene.words
        assert sum(calls(*replicas)) <= requests * (1 + 0.25 + 0.25)

    on_paused_loop(main())


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
def test_what_another_model_refuses_is_not_what_is_wrong_with_a_request(first: ServiceError, error: type[ServiceError]):
    of_another_api = ScriptedLlm(InvalidInput("reasoning_effort", "no such field of model b", "high"))
    scene = play(a=ScriptedLlm(first), b=of_another_api)
    assert type(scene.error) is error
    assert calls(of_another_api) == [1]
    scene = play(a=ScriptedLlm(first), b=of_another_api, c=says("Me."))
    assert scene.words == "Me."


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


def test_a_second_call_that_is_cancelled_before_it_has_begun_keeps_no_place_and_costs_nothing():
    async def main() -> None:
        behind = fleet(loop_clock, {"hedge": HEDGE}, m=[says("a", 1.0), says("b", 1.0)])
        behind.request()
        first, deadline = Attempt(Scene(behind).job), Deadline.after(1.0, loop_clock)
        slot = await behind.pools["m"].limiter.enter(Ticket(0, "acme", 1.0, deadline))
        runners = hedging._Runners(behind, _never, FirstTokenTimeout(behind), first, behind.pools["m"], None)
        running = asyncio.create_task(runners.run(_never(Placed(first, slot))))
        await asyncio.sleep(0)
        first.call = _Sent(behind.pools["m"])
        call = runners._second()
        call.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert behind.pools["m"].limiter.in_flight == 1
        assert behind.hedges._budget.level == 2  # as many as there were requests
        slot.release()
        running.cancel()
        await asyncio.gather(running, call, return_exceptions=True)

    on_paused_loop(main())


async def _never(placed: Placed) -> None:
    await asyncio.Event().wait()


class _Sent:
    """A call that was sent a while ago."""

    def __init__(self, pool: Pool):
        self.pool, self.replica = pool, pool.replicas[0]

    def age_s(self) -> float:
        return 0.1

    def leave(self) -> None:
        pass


@pytest.mark.parametrize(
    ("script", "flowed"),
    [
        pytest.param([0.5, text("a"), *5 * [0.1, text("b")], 0.1, finish()], (5, 0.5), id="a token each 100 ms"),
        pytest.param([0.5, text("a"), 0.1, text("b", 4), 9.0, finish("c")], (4, 0.1), id="the rest comes with the end"),
        pytest.param([0.5, finish("all of it")], (0, 0.0), id="one message"),
    ],
)
def test_the_token_rate_is_that_of_the_stream_without_what_is_only_counted_at_its_end(script, flowed):
    """Hidden reasoning of a provider is in the usage, and in the tokens of the last message."""
    script[-1].finish.usage.completion_tokens, script[-1].tokens = 2_000, 1_995
    seen = list[tuple[int, float]]()

    def note(behind: Fleet) -> None:
        behind.pools["m"].sag.saw = lambda tokens, seconds: seen.append((tokens, seconds))

    play(arrange=note, m=ScriptedLlm(*script))
    assert seen == [(flowed[0], pytest.approx(flowed[1]))]
