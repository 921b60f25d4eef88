"""Answers that are more than text: calls of tools, thoughts, log-probabilities."""

from __future__ import annotations

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.runtime.errors import NotSupported, Unavailable
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused

TOOLS = [chat_pb2.Tool(name="clock", parameters='{"type": "object"}'), chat_pb2.Tool(name="weather")]
CALLS = chat_pb2.FINISH_REASON_TOOL_CALLS


def call(index: int, arguments: str = "", **fields: str) -> llm_pb2.GenerateResponse:
    delta = chat_pb2.ToolCallDelta(index=index, arguments=arguments, **fields)
    return llm_pb2.GenerateResponse(tool_calls=[delta], tokens=1)


TWO_CALLS = (
    call(0, id="a", name="clock"),
    call(0, '{"city": '),
    0.001,
    call(1, "{}", id="b", name="weather"),
    call(0, '"Oslo"}'),
    finish(reason=CALLS),
)


async def test_calls_are_streamed_as_they_come_and_whole_at_the_end():
    scene = Scene(small=ScriptedLlm(*TWO_CALLS))
    events = await scene.events(tools=TOOLS)
    deltas = [event.tool_call for event in events if event.HasField("tool_call")]
    assert [(delta.index, delta.arguments) for delta in deltas] == [
        (0, ""),
        (0, '{"city": '),
        (1, "{}"),
        (0, '"Oslo"}'),
    ]
    final = events[-1].final
    assert [(each.id, each.name, each.arguments) for each in final.tool_calls] == [
        ("a", "clock", '{"city": "Oslo"}'),
        ("b", "weather", "{}"),
    ]
    assert (final.text, final.finish_reason, final.HasField("ttft_ms"), list(final.degraded)) == ("", CALLS, True, [])


async def test_a_model_is_asked_with_the_tools_and_the_choice():
    scene = Scene()
    choice = chat_pb2.ToolChoice(name="clock")
    await scene.final(tools=TOOLS, tool_choice=choice, parallel_tool_calls=False)
    (asked,) = scene.llms["small"].requests
    assert (list(asked.tools), asked.tool_choice) == (TOOLS, choice)
    assert (asked.HasField("parallel_tool_calls"), asked.parallel_tool_calls) == (True, False)


@pytest.mark.parametrize(("seeing", "answers"), [(("large",), "large"), ((), "small")])
async def test_a_picture_that_the_gateway_does_not_read_is_for_a_model_with_vision(
    seeing: tuple[str, ...], answers: str
):
    routes = ScriptedRoutes(seeing=seeing)
    scene = Scene(None, routes, small=ScriptedLlm(finish("Hm.")), large=ScriptedLlm(finish("A cat.")))
    by_url = chat_pb2.Document(place="messages[0].content[0]", begin=0, end=11, picture=True)
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="[image_url]", documents=[by_url])
    assert (await scene.final(messages=[message])).model == answers


async def test_thoughts_come_before_the_text_and_are_no_part_of_it():
    thought = llm_pb2.GenerateResponse(reasoning="Hm. ", tokens=2)
    scene = Scene(
        small=ScriptedLlm(thought, llm_pb2.GenerateResponse(reasoning="Yes.", text="Pa", tokens=1), finish("ris."))
    )
    events = await scene.events()
    kinds = [event.WhichOneof("kind") for event in events if event.WhichOneof("kind") in ("reasoning", "delta")]
    assert kinds == ["reasoning", "reasoning", "delta", "delta"] or kinds == ["reasoning", "reasoning", "delta"]
    assert (events[-1].final.text, events[-1].final.reasoning) == ("Paris.", "Hm. Yes.")


async def test_log_probabilities_are_those_of_the_text():
    logprobs = [chat_pb2.TokenLogprob(token="Pa", logprob=-0.5, top=[chat_pb2.TokenLogprob(token="Pa", logprob=-0.5)])]
    scene = Scene(small=ScriptedLlm(llm_pb2.GenerateResponse(text="Pa", tokens=1, logprobs=logprobs), finish("ris.")))
    events = await scene.events(sampling=chat_pb2.Sampling(top_logprobs=1))
    assert next(list(event.delta.logprobs) for event in events if event.HasField("delta")) == logprobs
    assert list(events[-1].final.logprobs) == logprobs


async def test_an_answer_cut_by_a_content_filter_is_not_stored():
    scene = Scene(
        ScriptedCache(MISS), small=ScriptedLlm(text("Pa"), finish(reason=chat_pb2.FINISH_REASON_CONTENT_FILTER))
    )
    final = await scene.final()
    assert (final.finish_reason, scene.write_behind.stored) == (chat_pb2.FINISH_REASON_CONTENT_FILTER, [])


async def test_a_model_that_cannot_call_tools_gives_way_to_one_that_can_and_is_not_blamed():
    small = ScriptedLlm(NotSupported("tools: not supported by this engine"))
    scene = Scene(small=small, large=ScriptedLlm(*TWO_CALLS))
    for _ in range(8):
        final = await scene.final(tools=TOOLS)
        assert (final.model, len(final.tool_calls)) == ("large", 2)
    assert len(small.calls) == 8  # no breaker opened, no call was made twice


async def test_callers_get_an_error_for_features_that_no_model_has():
    scene = Scene(small=ScriptedLlm(NotSupported("tools: no")), large=ScriptedLlm(NotSupported("tools: no")))
    with pytest.raises(NotSupported):
        await scene.final(tools=TOOLS)


async def _broken(script: list[object], **fields: object) -> tuple[pb.Final, int]:
    """An answer that breaks after `script`, and how often the other replica was asked to go on."""
    replicas = [ScriptedLlm(*script, Unavailable("broke")), ScriptedLlm(finish("rest"))]
    scene = Scene(small=replicas)
    for _ in range(10):
        scene.fleet.count_request()  # which pays for two more calls
    final = await scene.final(**fields)
    assert all(len(replica.calls) <= 1 for replica in replicas)
    return final, sum(bool(request.prefix) for replica in replicas for request in replica.requests)


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        ([text("the "), call(0, id="a", name="clock")], {"tools": TOOLS}),
        ([text("the ")], {"tools": TOOLS}),
        ([llm_pb2.GenerateResponse(reasoning="Hm. ", tokens=2), text("the ")], {}),
    ],
)
async def test_a_call_or_a_thought_that_broke_off_is_not_gone_on_with(script: list[object], fields: dict[str, object]):
    final, went_on = await _broken(script, **fields)
    assert (final.finish_reason, went_on) == (chat_pb2.FINISH_REASON_INTERRUPTED, 0)


async def test_an_index_that_makes_no_sense_costs_nothing():
    scene = Scene(
        small=ScriptedLlm(call(2**31 - 1, id="b", name="weather"), call(-1, id="a", name="clock"), finish(reason=CALLS))
    )
    final = await scene.final(tools=TOOLS)
    assert [each.name for each in final.tool_calls] == ["clock", "weather"]


async def test_a_model_with_vision_gets_the_pictures_and_no_labels():
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(seeing=("small",)))
    scene.pixels = True
    final = await scene.final(images=[pb.Image(data=b"1"), pb.Image(data=b"2")])
    (asked,) = scene.llms["small"].requests
    *pictures, question = asked.messages[-1].parts
    assert ([part.image for part in pictures], question.text) == ([b"1", b"2"], "What is the capital of France?")
    assert [stage.name for stage in final.stages] == ["router", "cache", "llm"]
    (stored,) = scene.write_behind.stored
    assert len(stored.question.attachments) == 2  # another picture is another question
