"""Second calls: when they are made, which one answers, and what they cost."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.errors import ModelUnavailable
from services.gateway.generation import hedging
from services.gateway.generation.hedging import FirstTokenWait
from services.gateway.generation.job import Attempt, Granted
from services.gateway.policies.slot import SlotRequest
from services.gateway.upstream.fleet import Pool
from services.runtime.deadline import Deadline
from tests.clock import loop_clock, on_paused_loop
from tests.examples import examples
from tests.unit.gateway.generation.scene import ALWAYS_OPEN, GONE, HEDGE, RETRY, Scene, calls, play, says, too_busy
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text

pytestmark = pytest.mark.paused


TIED = {"mode": "tied", "max_share": 1}


@pytest.mark.parametrize(
    ("hedge", "replicas", "answers", "actions", "took_s"),
    [
        pytest.param(HEDGE, [("slow", 5.0), ("quick", 0.2)], "quick", ["started", "won"], 0.31, id="a hedge that wins"),
        pytest.param(HEDGE, [("a", 0.15), ("b", 0.15)], "a", ["started"], 0.16, id="a hedge that loses"),
        pytest.param(HEDGE, [("a", 0.05), ("b", 0.05)], "a", [], 0.06, id="a first text in time"),
        pytest.param(HEDGE, [("slow", 5.0)], "slow", [], 5.01, id="a single replica"),
        pytest.param(TIED, [("a", 0.2), ("b", 0.1)], "b", ["started", "won"], 0.11, id="tied calls"),
    ],
)
def test_a_late_first_text_is_hedged_and_the_first_text_wins(
    hedge: dict[str, object], replicas: list[tuple[str, float]], answers: str, actions: list[str], took_s: float
):
    llms = {words: says(words, after_s) for words, after_s in replicas}
    scene = play(policies={"hedge": hedge}, m=[*llms.values()])
    assert (scene.words, scene.decisions) == (answers, [("hedge", action) for action in actions])
    assert scene.took_s == pytest.approx(took_s)
    assert scene.report.prompts == sum(calls(*llms.values())) == (2 if actions else 1)
    lost = [call for words, llm in llms.items() for call in llm.calls if words != answers]
    assert all(call.closed and call.messages == [] for call in lost)


@pytest.mark.parametrize("after_s", [0.1, 0.1 - 1e-9, 0.1 + 1e-9])
def test_a_second_call_that_begins_with_the_first_text_keeps_no_slot(after_s: float):
    both = [says("a", after_s), says("b", 1.0)]  # `Scene` looks for slots that leak
    assert play(policies={"hedge": HEDGE}, m=both).words == "a"


def test_the_next_model_takes_the_second_call_only_where_that_is_wanted():
    for across_models, words in ((True, "other"), (False, "slow")):
        slow, other = says("slow", 5.0), says("other", 0.2)
        scene = play(policies={"hedge": {**HEDGE, "across_models": across_models}}, m=slow, other=other)
        assert (scene.words, scene.report.model) == (words, "other" if across_models else "m")


def test_the_second_call_needs_budget():
    slow = [says("a", 1.0), says("b", 1.0)]
    scene = play(policies={"hedge": {**HEDGE, "max_share": 0.05}}, m=slow)
    assert scene.decisions == [("hedge", "skipped")]
    assert "budget" in scene.report.decisions[0].reason
    slow = [says("a", 1.0), says("b", 1.0)]
    assert ("hedge", "started") in play(warm_up=20, policies={"hedge": {**HEDGE, "max_share": 0.05}}, m=slow).decisions


async def test_under_load_there_is_no_second_call():
    slow = [says("a", 1.0), says("b", 1.0)]
    behind = fleet(loop_clock, {"hedge": HEDGE, "limit": {"algorithm": "fixed", "initial": 1, "queue": 0}}, m=slow)
    assert (await Scene(behind).run()).decisions == [("hedge", "skipped")]


async def test_a_hedge_is_not_made_to_a_replica_whose_breaker_is_open():
    broken, slow = ScriptedLlm(GONE), says("slow", 1.0)
    behind = fleet(
        loop_clock, {"hedge": HEDGE, "retry": RETRY, "breaker": {**ALWAYS_OPEN, "open_ms": 60_000}}, m=[broken, slow]
    )
    await Scene(behind).run()
    scene = await Scene(behind).run()
    assert (scene.words, scene.decisions) == ("slow", [("hedge", "skipped")])
    assert calls(broken) == [1]


def test_a_hedged_call_that_fails_is_not_retried_too():
    both = [ScriptedLlm(0.2, GONE), ScriptedLlm(0.2, GONE)]
    scene = play(policies={"hedge": HEDGE, "retry": RETRY}, m=both)
    assert isinstance(scene.error, ModelUnavailable)
    assert calls(*both) == [1, 1]


delays = st.floats(0.0, 3.0, width=16)


scripts = st.one_of(
    delays.map(lambda pause: [pause, text("x"), pause, finish()]),
    delays.map(lambda pause: [pause, GONE]),
    delays.map(lambda pause: [pause, too_busy()]),
    delays.map(lambda pause: [pause, text("x"), GONE]),
    st.just([None]),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(scripts, min_size=1, max_size=6), st.lists(scripts, min_size=1, max_size=6), st.integers(1, 12))
def test_in_every_case_the_budget_holds_and_extra_calls_stay_within_their_own(one, two, requests):
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


async def test_a_second_call_cancelled_before_it_begins_keeps_no_slot_and_is_refunded():
    behind = fleet(loop_clock, {"hedge": HEDGE}, m=[says("a", 1.0), says("b", 1.0)])
    behind.count_request()
    first, deadline = Attempt(Scene(behind).job), Deadline.after(1.0, loop_clock)
    slot = await behind.pools["m"].limiter.enter(SlotRequest(0, "acme", 1.0, deadline))
    runners = hedging._HedgeRace(behind, _never, FirstTokenWait(behind), first, behind.pools["m"], None)
    running = asyncio.create_task(runners.run(_never(Granted(first, slot))))
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


async def _never(granted: Granted) -> None:
    await asyncio.Event().wait()


class _Sent:
    """A call that was sent a while ago."""

    def __init__(self, pool: Pool):
        self.pool, self.replica = pool, pool.replicas[0]

    def age_s(self) -> float:
        return 0.1

    def leave(self) -> None:
        pass
