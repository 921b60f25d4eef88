"""Calls to a model that is starting, or whose connection is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from services.gateway.errors import ModelUnavailable
from services.gateway.generation import start_wait
from services.gateway.generation.job import Job
from services.gateway.generation.shared import Shared
from services.gateway.generation.stack import make_stack
from services.gateway.generation.start_wait import StartWait
from services.gateway.policies.breaker import State
from services.gateway.policies.slot import Shed, SlotRequest
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import Starting, Unavailable
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.generation.scene import GONE, RETRY, Scene, calls, play, says
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text

pytestmark = pytest.mark.paused


def starting(after_s: float | None = None, model: str = "m") -> Callable[[Fleet], None]:
    """The first replica of `model` is starting, and has started after that time."""

    def arrange(behind: Fleet) -> None:
        start = behind.pools[model].replicas[0].start
        start.starting = True
        if after_s is not None:
            asyncio.get_running_loop().call_later(after_s, start.started)

    return arrange


def lost(after_s: float | None = None) -> Callable[[Fleet], None]:
    """The connection of the first replica of `m` is lost, and is there again after that time."""

    def arrange(behind: Fleet) -> None:
        replica = behind.pools["m"].replicas[0]
        replica.breaker.disconnected()
        replica.start.lost = True
        starting(after_s)(behind)

    return arrange


@pytest.mark.parametrize(("away", "to"), [(starting, "start"), (lost, "come back")])
def test_a_call_waits_for_the_model_and_its_stage_can_say_so(away: Callable[[float], Any], to: str):
    waits = _waits()
    scene = play(arrange=away(2.0), m=says("here"))
    assert (scene.words, scene.decisions, scene.report.problems) == ("here", [("start", "waited")], [])
    assert scene.took_s == pytest.approx(2.01)
    assert scene.report.waited == f"m: 2000 ms for the model to {to}"
    assert [now - before for now, before in zip(_waits(), waits, strict=True)] == pytest.approx([1, 2.0])


def _waits() -> list[float]:
    """How many calls have waited for `m`, and for how many seconds altogether."""
    name, labels = "hedgerow_start_wait_seconds", {"model": "m"}
    return [REGISTRY.get_sample_value(f"{name}_{part}", labels) or 0.0 for part in ("count", "sum")]


@pytest.mark.parametrize(
    ("away", "to", "error", "why"),
    [(starting, "start", Starting, "the model is starting"), (lost, "come back", ModelUnavailable, "no connection")],
)
def test_a_call_waits_no_longer_than_its_budget_and_its_error_says_why(
    away: Callable[[], Any], to: str, error: type[Unavailable], why: str
):
    llm = says("here")
    scene = play({"budget_s": 1.0}, arrange=away(), m=llm)
    assert (type(scene.error), scene.error.message) == (error, f"m: {why}")
    assert scene.report.waited == f"m: 950 ms for the model to {to}, in vain"
    assert scene.decisions[0] == ("start", "waited")
    assert 0 < scene.error.retry_delay_s <= 1.2
    assert 0.9 < scene.took_s < 1.0
    assert calls(llm) == [0]


async def test_a_call_waits_no_longer_than_for_its_first_text():
    behind = fleet(loop_clock, m=says("here"))
    starting(2.0)(behind)
    scene = await Scene(behind, first_text=Deadline.after(0.5, loop_clock)).run()
    assert isinstance(scene.error, Starting)
    assert scene.took_s == pytest.approx(0.5)


async def test_a_call_behind_another_tenants_waits_no_longer_than_for_its_first_text():
    behind = fleet(loop_clock, {"limit": {"algorithm": "fixed", "initial": 1}}, m=says("here"))
    await behind.pools["m"].limiter.enter(SlotRequest(0, "other", 1.0, Deadline.never()))
    starting(0.1)(behind)
    job = Scene(behind).job
    stack, hurried = make_stack(behind, lambda _: None), replace(job, first_text=Deadline.after(0.5, loop_clock))
    other = replace(job, slot_request=replace(job.slot_request, tenant="other"))
    first, second = stack.read(b"", other, 10.0), stack.read(b"", hurried, 10.0)
    with pytest.raises(Shed):
        await second.reader.take()
    assert hurried.first_text.clock() - hurried.first_text.at < 0.5
    first.reader.close()


async def test_a_call_that_does_not_wait_does_not_join_one_that_does():
    behind = fleet(loop_clock, m=says("here"))
    starting(2.0)(behind)
    stack, waits = make_stack(behind, lambda _: None), Scene(behind).job
    waiting = stack.read(b"key", waits, 10.0)
    await asyncio.sleep(0.1)
    leaving = stack.read(b"key", replace(Scene(behind).job, waits_for_model=False), 10.0)
    with pytest.raises(Unavailable):
        await leaving.reader.take()
    leaving.reader.close()
    assert (await waiting.reader.take())[0].text == "here"
    waiting.reader.close()


@pytest.mark.parametrize(("away", "refused"), [(starting, []), (lost, [("breaker", "refused")])])
def test_another_model_that_serves_answers_at_once(away: Callable[[float], Any], refused: list[tuple[str, str]]):
    absent = says("late")
    scene = play(arrange=away(2.0), m=absent, other=says("other"))
    assert (scene.words, scene.report.model, calls(absent)) == ("other", "other", [0])
    assert scene.decisions == [*refused, ("fallback", "started")]


def test_a_call_waits_where_the_other_model_is_away():
    def arrange(behind: Fleet) -> None:
        starting(2.0)(behind)
        behind.pools["other"].replicas[0].breaker.disconnected()

    scene = play(policies={"breaker": {"open_ms": 60_000}}, arrange=arrange, m=says("here"), other=says("other"))
    assert (scene.words, scene.report.model) == ("here", "m")


def test_a_replica_that_is_starting_gets_no_call_while_another_serves():
    loading, other = says("late"), says("other")
    scene = play(arrange=starting(), m=[loading, other])
    assert (scene.words, calls(loading, other), scene.decisions) == ("other", [0, 1], [])


async def test_all_calls_that_have_waited_are_let_through_although_the_breaker_was_open():
    behind = fleet(loop_clock, {"breaker": {"open_ms": 60_000}}, m=says("here"))
    behind.pools["m"].replicas[0].breaker.disconnected()
    starting(2.0)(behind)
    stack = make_stack(behind, lambda _: None)
    readings = [stack.read(b"", Scene(behind).job, 10.0) for _ in range(5)]
    texts = ["".join([item.text for item in await reading.reader.take()]) for reading in readings]
    for reading in readings:
        reading.reader.close()
    assert texts == ["here"] * 5
    assert behind.pools["m"].replicas[0].breaker.state is State.CLOSED


def test_a_service_that_says_it_is_starting_is_asked_again_when_its_health_has_been_looked_at():
    llm = ScriptedLlm(scripts=[[Starting("m: starting")], [text("here"), finish()]])

    def arrange(behind: Fleet) -> None:
        start = behind.pools["m"].replicas[0].start
        start._followed = True
        asyncio.get_running_loop().call_later(2.0, start.started)

    scene = play(warm_up=20, policies={"retry": RETRY}, arrange=arrange, m=llm)
    assert (scene.words, calls(llm), scene.decisions) == ("here", [2], [("start", "waited")])


def test_calls_that_find_too_many_others_waiting_are_refused_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(start_wait, "_WAITING_BYTES", 0)
    scene = play(arrange=starting(2.0), m=says("here"))
    assert isinstance(scene.error, Starting)
    assert scene.took_s < 0.1


def test_a_model_without_replicas_is_waited_for_while_the_control_plane_may_still_list_one():
    def arrange(behind: Fleet) -> None:
        pool = behind.pools["m"]
        pool.awaited = True

        def give_up() -> None:
            pool.awaited = False
            pool.notice.notify()

        asyncio.get_running_loop().call_later(2.0, give_up)

    scene = play(arrange=arrange, m=[])
    assert isinstance(scene.error, Unavailable)
    assert not isinstance(scene.error, Starting)
    assert scene.took_s == pytest.approx(2.0)


def test_a_call_whose_connection_is_lost_after_it_was_sent_fails_at_once():
    llm = ScriptedLlm(0.1, GONE)

    def arrange(behind: Fleet) -> None:
        asyncio.get_running_loop().call_later(0.1, lost(2.0), behind)

    scene = play(policies={"retry": RETRY}, warm_up=20, arrange=arrange, m=llm)
    assert isinstance(scene.error, Unavailable)
    assert (calls(llm), scene.took_s) == ([1], pytest.approx(0.1, abs=0.01))


FEW_PLACES = {"algorithm": "fixed", "initial": 2, "queue": 2, "queue_ms": 10}


async def test_calls_that_waited_for_a_model_go_on_as_it_has_slots_with_tenants_in_turn():
    """The limiter would refuse most of 40 calls that come at once: it has two slots, and two may wait for 10 ms."""
    llm = says("here", after_s=0.1)
    behind = fleet(loop_clock, {"limit": FEW_PLACES}, m=llm)
    lost(2.0)(behind)
    stack, ends = make_stack(behind, lambda _: None), list[str]()

    async def ask(tenant: str) -> None:
        job = Scene(behind).job
        job = replace(job, slot_request=replace(job.slot_request, tenant=tenant))
        await _read(stack, job)
        assert len(job.report.calls) == 1
        ends.append(tenant)

    await asyncio.gather(*(ask("flood") for _ in range(39)), ask("other"))
    assert Counter(ends) == {"flood": 39, "other": 1}
    assert ends.index("other") < 8


async def _read(stack: Shared, job: Job) -> None:
    """All of an answer."""
    reader = stack.read(b"", job, job.deadline.remaining()).reader
    try:
        while await reader.take():
            pass
    finally:
        reader.close()


async def test_a_call_that_waited_for_a_model_and_finds_no_slot_is_shed():
    behind = fleet(loop_clock, {"limit": {**FEW_PLACES, "initial": 1}}, m=says("here"))
    lost(0.2)(behind)
    scene = Scene(behind, budget_s=1.0)
    held = await behind.pools["m"].limiter.enter(replace(scene.job.slot_request, deadline=Deadline.never(loop_clock)))
    with pytest.raises(Shed):
        await _read(make_stack(behind, lambda _: None), scene.job)
    held.release()


@cancelled_at_every_await(awaits=3)
async def test_a_call_that_is_cancelled_as_it_waits_holds_nothing_and_lets_the_next_one_go() -> Work:
    behind = fleet(loop_clock, {"limit": {**FEW_PLACES, "initial": 1}}, m=says("here"))
    first, second = Scene(behind), Scene(behind)
    held = await behind.pools["m"].limiter.enter(first.job.slot_request)
    lost(0.2)(behind)
    release = asyncio.get_running_loop().call_later(0.5, held.release)
    stack: Any = make_stack(behind, lambda _: None)
    wait = StartWait(behind, stack._inner._begin._inner)
    yield _begun(wait, first.job)
    release.cancel()
    held.release()
    await asyncio.sleep(1)
    lost(0.2)(behind)
    await _begun(wait, second.job)
    assert (wait._held._taken, wait._turns["m"].waiting) == (0, 0)


async def _begun(wait: StartWait, job: Job) -> None:
    (await wait(job)).cancel()
