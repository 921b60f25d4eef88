"""The original body that a model is sent, where a policy has changed the request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.settings.guard import GuardSettings
from services.runtime.aside import LARGE_BYTES, size_of
from services.runtime.errors import InvalidInput, TooLate, Unavailable
from services.runtime.policy.fair_thread import FairThread
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import ACME, Scene
from tests.unit.gateway.scripted import ScriptedLlm, finish, text
from tests.unit.gateway.scripted_media import ScriptedAudio, ScriptedVision, senses
from tests.unit.gateway.scripted_tools import ScriptedTools, calls, toolbox

pytestmark = pytest.mark.paused

ANSWER = (text("It "), finish("rains."))
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
DOOR = [chat_pb2.Tool(name="door")]
REQUIRED = chat_pb2.ToolChoice(mode=chat_pb2.TOOL_MODE_REQUIRED)


def words(api: int = chat_pb2.API_CHAT_COMPLETIONS, **body: Any) -> chat_pb2.Original:
    return chat_pb2.Original(api=api, body=json.dumps({"messages": ASKED, **body}).encode())


MANY: list[dict[str, Any]] = [{}] * (LARGE_BYTES // size_of(1) + 1)


def sent(request: llm_pb2.GenerateRequest) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(request.original.body)
    return body


def agent(*scripts: object, **limits: object) -> Scene:
    """A model that is offered a tool of the mesh, and plays one script for each time that it is asked."""
    weather = ScriptedTools(weather=(0.02, "rain"))
    return Scene(tools=toolbox(weather, **limits), small=ScriptedLlm(scripts=scripts), large=ScriptedLlm(*ANSWER))


OFFERED = [pb.MeshTool(name="weather", offered=True)]
OSLO = ("weather", {"city": "Oslo"})


@pytest.mark.parametrize("seen", [{}, {"images": [pb.Image(data=b"png")]}], ids=["text", "a picture that it sees"])
async def test_an_unchanged_request_is_sent_in_its_original_words(seen: dict[str, Any]):
    scene = Scene(small=ScriptedLlm(*ANSWER))
    scene.pixels = True
    own = words(temperature=0.3)
    await scene.final(original=own, **seen)
    (asked,) = scene.llms["small"].requests
    assert asked.original == own


@pytest.mark.parametrize(
    ("choice", "tools"),
    [("required", DOOR), ({"type": "function", "function": {"name": "weather"}}, [])],
    ids=["of its own", "of the mesh's"],
)
async def test_a_tool_that_had_to_be_called_need_not_be_called_again(choice: object, tools: list[chat_pb2.Tool]):
    scene = agent([calls(OSLO)], ANSWER, max_steps=1)
    wanted = REQUIRED if choice == "required" else chat_pb2.ToolChoice(name="weather")
    own = words(tool_choice=choice, tools=[], top_p=0.5)
    await scene.final(mesh_tools=OFFERED, tools=tools, tool_choice=wanted, original=own)
    first, last = scene.llms["small"].requests
    assert [wanted, "tool_choice" in sent(first)] == [first.tool_choice, False]
    assert "tool_choice" not in sent(last)
    assert last.tool_choice != wanted
    assert ("tools" in sent(last)) == bool(tools), "a model receives the tools that its conversation has calls of"
    assert sent(last)["top_p"] == 0.5


@pytest.mark.parametrize("media", [{"images": [pb.Image(data=b"png")]}, {"audio": pb.Audio(data=b"wav")}])
async def test_media_without_a_text_in_time_are_not_sent_to_a_model_that_needs_texts(media: dict[str, Any]):
    late = senses(ScriptedVision(pause_s=9), ScriptedAudio("Rain.", pause_s=9))
    scene = Scene(senses=late, small=ScriptedLlm(*ANSWER))
    await scene.final(original=words(top_p=0.5), **media)
    (asked,) = scene.llms["small"].requests
    assert sent(asked) == {"top_p": 0.5}


@pytest.mark.parametrize(
    "large",
    [
        pytest.param({"images": [pb.Image(data=b"png")], "original": words(items=MANY)}, id="its body is rewritten"),
        pytest.param({"messages": [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="a" * 1_050_000)]}, id="copied"),
    ],
)
async def test_a_large_request_that_waits_for_others_ends_with_its_budget(
    large: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    async def wait(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(FairThread, "run", wait)  # of which others have the thread
    scene = Scene(senses=senses(ScriptedVision(pause_s=9)), small=ScriptedLlm(*ANSWER))
    began = loop_clock()
    with pytest.raises(TooLate, match="the request is large"):
        await scene.final(**large)
    assert loop_clock() - began == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("form", "left"),
    [
        ({"response_format": {"type": "json_object"}}, {}),
        ({"structured_outputs": {"json_object": True}}, {}),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, {}),
        ({"output_format": {"type": "json_schema", "schema": {}}}, {}),
        (
            {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}}},
            {"output_config": {"effort": "low"}},
        ),
    ],
)
async def test_a_model_that_chooses_what_to_call_is_held_to_no_form(form: dict[str, Any], left: dict[str, Any]):
    scene = agent([calls(OSLO)], [finish("{}")], [finish("{}")])
    own = words(**form)
    await scene.final(mesh_tools=OFFERED, response_format=chat_pb2.ResponseFormat(json_object=True), original=own)
    first, *_, last = scene.llms["small"].requests
    assert [each.response_format.json_object for each in (first, last)] == [False, True]
    assert sent(first) == left
    assert {name: sent(last)[name] for name in form} == form


FILE = "messages[0].content[1]"
WITH_FILE = chat_pb2.Message(
    role=chat_pb2.ROLE_USER, content="Read [file] now.", documents=[chat_pb2.Document(place=FILE, begin=5, end=11)]
)


@pytest.mark.parametrize("asked", [{"mesh_tools": OFFERED}, {"mesh_tools": [pb.MeshTool(name="weather")]}])
async def test_documents_stay_in_a_conversation_that_the_gateway_changes(asked: dict[str, Any]):
    scene = agent([calls(OSLO)] if asked["mesh_tools"] == OFFERED else ANSWER, ANSWER)
    own = words()
    own.untranslated[FILE] = '{"type":"file","file":{"file_id":"file-1"}}'
    await scene.final(messages=[WITH_FILE], original=own, **asked)
    last = scene.llms["small"].requests[-1]
    assert "messages" not in sent(last)
    message = next(each for each in last.messages if each.documents)
    (document,) = message.documents
    assert (document.place, message.content[document.begin : document.end]) == (FILE, "[file]")


async def test_a_document_in_a_message_that_a_policy_has_rewritten_is_refused():
    scene = Scene(small=ScriptedLlm(*ANSWER))
    scene.tenant = replace(ACME, guard=GuardSettings(personal="mask"))
    own = words()
    own.untranslated[FILE] = '{"type":"document","source":{"type":"text","data":"From anna@example.com."}}'
    message = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Is it bob@example.com? [document]")
    message.documents.add(place=FILE, begin=23, end=33)
    with pytest.raises(InvalidInput, match=r"messages\[0\].content\[1\]: none where the gateway changes"):
        await scene.final(messages=[message], original=own)


def relayed(words: str, event: str, **more: Any) -> llm_pb2.GenerateResponse:
    return llm_pb2.GenerateResponse(text=words, tokens=1, relayed=[event.encode()], **more)


async def test_an_answer_that_another_call_resumes_is_sent_as_the_gateways_events():
    usage = chat_pb2.Usage(prompt_tokens=8, completion_tokens=1)
    end = llm_pb2.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=usage)
    breaks = ScriptedLlm(relayed("It ", "first"), 0.01, Unavailable("gone"))
    goes_on = ScriptedLlm(relayed("rains", "second"), 0.01, relayed(".", "third", finish=end))
    scene = Scene(small=[breaks, goes_on])
    for _ in range(20):  # requests that earn the budget of retries
        scene.fleet.count_request()
    events = await scene.events(original=words())
    assert events[-1].final.text == "It rains."
    assert events[-1].final.usage.completion_tokens == 2
    relayed_events = [event for event in events if event.HasField("relayed")]
    assert [list(event.relayed.events) for event in relayed_events] == [[b"first"]]
    own = [event.delta.text for event in events if event.HasField("delta") and not event.in_relayed]
    assert own == ["rains", "."]
