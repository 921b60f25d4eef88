"""A model that is offered tools of the mesh."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.prompt_builder import as_data
from services.runtime.errors import InvalidInput, NotSupported, Unavailable
from tests.clock import on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import Scene, outcomes
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedLlm, ScriptedRoutes, finish, text
from tests.unit.gateway.scripted_tools import ScriptedTools, calls, tool_response, toolbox

pytestmark = pytest.mark.paused

STOP, TOOL_CALLS = chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_TOOL_CALLS
NONE = chat_pb2.TOOL_MODE_NONE
OFFERED = [pb.MeshTool(name="weather", offered=True), pb.MeshTool(name="news", offered=True)]
OSLO, ROME = ("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})
ANSWER = (text("It "), finish("rains."))


class Obedient(ScriptedLlm):
    """Plays its scripts where it may call tools, and else answers."""

    def __init__(self, *scripts: list[object]):
        super().__init__(scripts=[*scripts, ANSWER])

    def generate(self, request, timeout_s, metadata):
        if request.tools and request.tool_choice.mode != NONE:
            return super().generate(request, timeout_s, metadata)
        scripts, self._scripts = self._scripts, [ANSWER]
        try:
            return super().generate(request, timeout_s, metadata)
        finally:
            self._scripts = scripts


def tools(**says: tuple[float, object]) -> ScriptedTools:
    return ScriptedTools(**{"weather": (0.02, "rain"), "news": (0.02, "none"), **says})


def scene(source: ScriptedTools, *scripts: object, **limits: object) -> Scene:
    """A model that plays one script for each time that it is asked."""
    return Scene(tools=toolbox(source, **limits), small=ScriptedLlm(scripts=scripts), large=ScriptedLlm(*ANSWER))


def made(final: pb.Final) -> list[tuple[str, str]]:
    return [(each.action, each.subject) for each in final.decisions if each.policy == "tool"]


async def test_an_agents_tool_calls_run_concurrently_and_it_answers_with_their_results():
    source = tools()
    scene_ = scene(source, [calls(OSLO, ("news", {}))], ANSWER)
    final = await scene_.final(mesh_tools=OFFERED)
    assert (final.text, final.finish_reason, final.model) == ("It rains.", STOP, "small")
    assert [call.name for call in source.calls] == ["weather", "news"]
    started = {stage.name: stage.started_ms for stage in final.stages}
    assert started["tool:weather"] == pytest.approx(started["tool:news"])
    first, last = scene_.llms["small"].requests
    assert [tool.name for tool in first.tools] == ["weather", "news"]
    _, turn, *results = last.messages
    assert [call.name for call in turn.tool_calls] == ["weather", "news"]
    assert [(each.tool_call_id, each.content) for each in results] == [
        ("call_0", as_data("weather", "rain")),
        ("call_1", as_data("news", "none")),
    ]
    assert set(outcomes(final)) == {"router", "tool:weather", "tool:news", "agent", "llm"}
    assert set(outcomes(final).values()) == {"OK"}
    assert (list(final.tool_calls), list(final.degraded), scene_.billed) == ([], [], [20])
    assert final.cost_usd == pytest.approx(2 * (7 + 2 * 3) / 1e6)


async def test_an_agents_answer_without_calls_is_streamed_from_one_generation():
    scene_ = scene(tools(), [text("It "), 0.1, text("rains"), 0.6, finish(".")])
    final = await scene_.final(mesh_tools=OFFERED)
    assert (final.text, final.finish_reason) == ("It rains.", STOP)
    assert final.ttft_ms < 20
    assert len(scene_.llms["small"].calls) == 1
    assert final.usage.completion_tokens == 3
    assert final.cost_usd == pytest.approx((7 + 2 * 3) / 1e6)
    assert scene_.billed == [10]
    assert not final.degraded


async def test_after_its_last_step_it_must_answer_without():
    source = tools()
    scene_ = scene(source, [calls(OSLO)], [calls(ROME)], ANSWER, max_calls=10)
    final = await scene_.final(mesh_tools=OFFERED)
    first, second, last = scene_.llms["small"].requests
    assert [each.tool_choice.mode for each in (first, second, last)] == [0, 0, NONE]
    assert (len(source.calls), final.text) == (2, "It rains.")


async def test_more_calls_than_it_may_have_are_not_made_and_it_must_answer():
    source = tools()
    scene_ = scene(source, [calls(OSLO, ROME, ("news", {}))], ANSWER)
    final = await scene_.final(mesh_tools=OFFERED)
    assert [call.name for call in source.calls] == ["weather", "weather"]
    assert made(final) == [("capped", "news")]
    assert list(final.degraded) == ["tools:limited"]
    assert "as many calls as there may be" in scene_.llms["small"].requests[1].messages[-1].content
    assert len(scene_.llms["small"].requests) == 2


async def test_a_request_may_ask_for_less_and_never_gets_more():
    for asked, got in ((1, 1), (100, 2)):
        source = tools()
        scene_ = scene(source, [calls(OSLO, ROME, ("news", {}))], ANSWER)
        await scene_.final(mesh_tools=OFFERED, tool_limits=pb.ToolLimits(calls=asked))
        assert len(source.calls) == got


async def test_the_same_call_again_is_not_made_and_it_must_answer():
    source = tools()
    again = ("weather", '{ "city" : "Oslo" }')
    scene_ = scene(source, [calls(OSLO)], [calls(again)], ANSWER, max_steps=10, max_calls=10)
    final = await scene_.final(mesh_tools=OFFERED)
    assert len(source.calls) == 1
    assert made(final) == [("repeated", "weather")]
    assert len(scene_.llms["small"].requests) == 3


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (("rocket", {}), "there is no tool of that name"),
        (("weather", "Oslo"), "its arguments must be a JSON object"),
        (("weather", "[]"), "its arguments must be a JSON object"),
        (("weather", '{"city": ' + "[" * 300 + "]" * 300 + "}"), "of at most 200 levels"),
        (("weather", {"city": "x" * 20_000}), "and 16384 bytes"),
    ],
)
async def test_a_call_that_cannot_be_made_is_a_result_for_the_model(call: tuple[str, object], line: str):
    source = tools()
    scene_ = scene(source, [calls(call)], [calls(OSLO)], ANSWER)
    final = await scene_.final(mesh_tools=OFFERED)
    assert [each[0] for each in made(final)] == ["refused"]
    *_, turn, result = scene_.llms["small"].requests[1].messages
    assert line in result.content
    assert isinstance(json.loads(turn.tool_calls[0].arguments), dict)  # else providers refuse the conversation
    assert (len(source.calls), final.text) == (1, "It rains.")


async def test_a_failed_or_late_call_is_a_result_for_the_model():
    source = tools(weather=(0.01, tool_response("no such city", failed=True)), news=(9, "none"))
    scene_ = scene(source, [calls(OSLO, ("news", {}))], ANSWER, own={"call_ms": 100})
    final = await scene_.final(mesh_tools=OFFERED)
    *_, weather, news = scene_.llms["small"].requests[1].messages
    assert weather.content == as_data("weather", "weather failed: no such city")
    assert news.content == as_data("news", "news has not answered in time.")
    assert sorted(final.degraded) == ["tools:budget", "tools:unavailable"]
    assert source.cancelled == ["news"]


async def test_a_call_of_the_callers_own_tool_ends_the_answer():
    source = tools()
    scene_ = scene(source, [calls(("door", {"open": True}), OSLO)], ANSWER)
    final = await scene_.final(mesh_tools=OFFERED, tools=[chat_pb2.Tool(name="door")])
    assert final.finish_reason == TOOL_CALLS
    assert [(call.id, call.name, json.loads(call.arguments)) for call in final.tool_calls] == [
        ("call_0", "door", {"open": True})
    ]
    assert not source.calls
    assert made(final) == [("dropped", "agent")]


async def test_the_callers_own_tools_can_still_be_called_in_the_answer():
    scene_ = scene(tools(), [calls(OSLO)], [calls(ROME)], [calls(("door", {}))])
    final = await scene_.final(mesh_tools=OFFERED, tools=[chat_pb2.Tool(name="door")])
    assert [tool.name for tool in scene_.llms["small"].requests[2].tools] == ["door"]
    assert (final.finish_reason, final.tool_calls[0].name) == (TOOL_CALLS, "door")


async def test_in_a_cascade_the_fast_model_chooses_and_the_better_one_answers():
    quick, better = ScriptedLlm(scripts=[[calls(OSLO)], [text("I would "), None]]), ScriptedLlm(*ANSWER)
    scene_ = Scene(None, ScriptedRoutes(("quick", "better")), tools=toolbox(tools()), quick=quick, better=better)
    final = await scene_.final(mesh_tools=OFFERED, cascade=pb.Cascade())
    assert (final.text, final.model) == ("It rains.", "better")
    assert len(quick.calls) == 2
    assert quick.calls[1].closed
    assert better.requests[0].messages[-1].content == as_data("weather", "rain")


async def test_near_the_end_it_must_answer_with_what_there_is():
    source = tools()
    scene_ = scene(source, [calls(OSLO)], [None], ANSWER)
    final = await scene_.final(mesh_tools=OFFERED, model="small")
    assert (final.text, final.finish_reason) == ("It rains.", STOP)
    assert made(final) == [("out_of_time", "agent")]
    assert outcomes(final)["agent"] == "OVERRUN"
    assert next(stage.spent_ms for stage in final.stages if stage.name == "agent") < 620
    assert scene_.llms["small"].calls[1].closed


async def test_words_that_are_cut_off_at_the_budget_stay_the_answer():
    final = await scene(tools(), [text("It "), None]).final(mesh_tools=OFFERED)
    assert (final.text, final.finish_reason) == ("It ", chat_pb2.FINISH_REASON_BUDGET)
    assert list(final.degraded) == ["llm:budget"]


@pytest.mark.parametrize(
    "problem", [NotSupported("small: tools"), Unavailable("small: gone"), InvalidInput("a", "b", 1)]
)
async def test_a_model_that_cannot_be_asked_what_to_call_answers_without(problem: Exception):
    scene_ = Scene(tools=toolbox(tools()), small=Obedient([problem]))
    final = await scene_.final(mesh_tools=OFFERED, model="small")
    assert final.text == "It rains."
    assert ("skipped", "agent") in made(final)
    assert "tools:unavailable" in final.degraded
    assert not scene_.llms["small"].requests[-1].tools


async def test_a_model_that_can_only_be_made_to_call_answers_with_what_came_of_that():
    scene_ = Scene(tools=toolbox(tools()), small=Obedient([calls(OSLO)], [NotSupported("small: auto")]))
    final = await scene_.final(mesh_tools=OFFERED, model="small", tool_choice=chat_pb2.ToolChoice(name="weather"))
    assert (final.text, list(final.degraded)) == ("It rains.", [])
    assert made(final) == [("skipped", "agent")]
    assert scene_.llms["small"].requests[-1].messages[-1].content == as_data("weather", "rain")


async def test_a_client_that_leaves_amid_an_agents_words_pays_for_what_was_read_and_written_until_then():
    words = [text("It "), 0.01, text("rains "), None]
    scene_, plain = scene(tools(), words), Scene(small=ScriptedLlm(*words))
    for asked in (scene_, plain):
        await _leaving_amid_words(asked)
    assert scene_.billed[0] >= plain.billed[0] > 2  # the tools that it was offered may count as well


async def _leaving_amid_words(asked: Scene) -> None:
    answer = await asked.equipped(mesh_tools=OFFERED) if asked.backends.tools else asked.answer()
    async with aclosing(sent_by(answer.give)) as messages:
        async for message in messages:
            if any("rains" in event.delta.text for event in message.events):
                return
    pytest.fail("the words have not come")


_NAMES = st.sampled_from(["weather", "news", "rocket"])
_TURN = st.lists(st.tuples(_NAMES, st.dictionaries(st.just("city"), st.integers(0, 3))), min_size=1, max_size=6)


@settings(max_examples=examples(40), deadline=None)
@given(turns=st.lists(_TURN, max_size=8), steps=st.integers(1, 4), most=st.integers(1, 6), pause=st.floats(0, 0.4))
def test_for_any_calls_of_a_model_the_caps_hold_none_is_made_twice_and_it_answers_in_time(
    turns: list[list[tuple[str, dict[str, int]]]], steps: int, most: int, pause: float
):
    async def play() -> None:
        source = tools(weather=(pause, "rain"))
        scripts = [[calls(*turn)] for turn in turns[:steps]]
        scene_ = Scene(tools=toolbox(source, max_steps=steps, max_calls=most), small=Obedient(*scripts))
        final = await scene_.final(mesh_tools=OFFERED)
        assert len(source.calls) <= most
        assert len({(call.name, call.arguments) for call in source.calls}) == len(source.calls)
        assert len(scene_.llms["small"].requests) <= steps + 1
        assert final.total_ms <= 1_000
        assert final.text == "It rains."
        for request in scene_.llms["small"].requests:  # every call has its result
            called = [call.id for message in request.messages for call in message.tool_calls]
            assert called == [message.tool_call_id for message in request.messages if message.tool_call_id]
            assert len(set(called)) == len(called)

    on_paused_loop(play())
