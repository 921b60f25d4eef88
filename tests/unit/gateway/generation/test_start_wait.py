"""Calls to a model that is starting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from services.gateway.generation import fallback
from services.gateway.generation.stack import make_stack
from services.gateway.policies.breaker import State
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import Starting, Unavailable
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


def test_a_call_waits_for_the_model_and_its_stage_can_say_so():
    scene = play(arrange=starting(2.0), m=says("here"))
    assert (scene.words, scene.decisions) == ("here", [("start", "waited")])
    assert scene.took_s == pytest.approx(2.01)
    assert scene.report.waited == "m: 2000 ms for the model to start"
    assert scene.report.problems == []


def test_a_call_waits_no_longer_than_its_budget_and_is_told_why():
    llm = says("here")
    scene = play({"budget_s": 1.0}, arrange=starting(), m=llm)
    assert isinstance(scene.error, Starting)
    assert scene.error.message == scene.report.waited == "m: the model is starting"
    assert scene.error.retry_delay_s == 1.0
    assert 0.9 < scene.took_s < 1.0
    assert calls(llm) == [0]


async def test_a_call_waits_no_longer_than_for_its_first_text():
    behind = fleet(loop_clock, m=says("here"))
    starting(2.0)(behind)
    scene = await Scene(behind, first_text=Deadline.after(0.5, loop_clock)).run()
    assert isinstance(scene.error, Starting)
    assert scene.took_s == pytest.approx(0.5)


def test_another_model_that_serves_answers_at_once():
    loading = says("late")
    scene = play(arrange=starting(2.0), m=loading, other=says("other"))
    assert (scene.words, scene.report.model, calls(loading)) == ("other", "other", [0])
    assert scene.decisions == [("fallback", "started")]


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
        reading.reader.leave()
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


def test_a_model_that_breaks_while_nothing_is_starting_is_not_waited_for():
    scene = play(m=ScriptedLlm(GONE))
    assert isinstance(scene.error, Unavailable)
    assert scene.took_s < 0.1


def test_calls_that_find_too_many_others_waiting_are_refused_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fallback, "_MOST_WAITING", 0)
    scene = play(arrange=starting(2.0), m=says("here"))
    assert isinstance(scene.error, Starting)
    assert scene.took_s < 0.1


def test_a_model_without_replicas_is_waited_for_while_the_control_plane_may_still_list_one():
    def arrange(behind: Fleet) -> None:
        pool = behind.pools["m"]
        pool.awaited = True

        def give_up() -> None:
            pool.awaited = False
            pool.notice.tell()

        asyncio.get_running_loop().call_later(2.0, give_up)

    scene = play(arrange=arrange, m=[])
    assert isinstance(scene.error, Unavailable)
    assert not isinstance(scene.error, Starting)
    assert scene.took_s == pytest.approx(2.0)
