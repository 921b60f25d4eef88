"""Requests of the SDK, and the errors for invalid arguments."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow import Client, InvalidArgument, MeshTool, Message, Request, Tool, ToolCall
from hedgerow._collection_messages import remove_requests
from hedgerow._request import generate_request, live_blocks, refuse_too_large
from hedgerow._speech import AudioFormat
from hedgerow.channel import MAX_MESSAGE_BYTES
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.vision.v1 import vision_pb2


def test_a_text_is_one_message_and_leaves_every_choice_to_the_gateway() -> None:
    request = generate_request("Why?")
    assert [(m.role, m.content) for m in request.messages] == [(chat_pb2.ROLE_USER, "Why?")]
    assert request.tier == pb.TIER_UNSPECIFIED
    assert not request.HasField("budget_ms")
    assert not request.sampling.HasField("temperature")
    assert request.response_format.WhichOneof("constraint") is None
    assert not request.cache.bypass
    assert request.attempt == 0


def test_a_single_text_is_not_split_into_letters() -> None:
    assert generate_request("?", stop="END").sampling.stop == ["END"]
    assert [each.sources for each in remove_requests("local", "manual", "a.md")] == [["a.md"]]


def test_an_option_of_none_is_as_one_that_is_left_out() -> None:
    options: Request = dict.fromkeys(set(Request.__annotations__) - {"messages", "images"})  # type: ignore[assignment]
    assert generate_request("?", **options) == generate_request("?")


def test_a_report_of_a_wrong_answer_is_refused_as_a_question_is() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(InvalidArgument, match=r"^question: "):
        client.report_wrong("0" * 64, "\ud800")


def test_zero_and_empty_are_values_not_absence() -> None:
    request = generate_request("", temperature=0.0, seed=0, budget_ms=0)
    assert request.sampling.HasField("temperature")
    assert request.sampling.HasField("seed")
    assert request.HasField("budget_ms")
    assert generate_request("?", budget_ms=-5).budget_ms == -5, "the gateway refuses it, not the SDK"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier": "best"}, "tier: fast, balanced or quality, got best"),
        ({"cache_allow": ["all"]}, "cache_allow: sampled, time_bound or personal, got all"),
        ({"cache": "never"}, "cache: auto, use, exact or bypass, got never"),
        (
            {"json_schema": "{}", "regex": "a"},
            "response_format: one of json_schema, regex, choice and grammar, got json_",
        ),
        ({"choice": ["a"], "grammar": "b"}, "response_format: one of json_schema, regex, choice and grammar, got gram"),
        ({"choice": ["\ud800"]}, "choice: "),
        ({"truncation": "middle"}, "truncation: auto or disabled, got middle"),
        ({"budget_ms": 2**40}, "budget_ms: Value out of range: 1099511627776"),
        ({"messages": [Message("bot", "")]}, "messages[0].role: system, user, assistant or tool, got bot"),  # type: ignore[arg-type]
        ({"messages": "\ud800"}, "messages[0].content: "),
        ({"stop": ["\ud800"]}, "stop: "),
        ({"messages": None}, "messages: a question, where there is no audio, got None"),
        ({"images": [b"png", b""]}, "images[1]: at least 1 byte, got 0"),
        ({"audio": b"x" * 5_000_000}, f"audio: at most {MAX_MESSAGE_BYTES} bytes, got 5000000; send a shorter or"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        generate_request(**{"messages": "?", **options})
    assert caught.value.message.startswith(message)
    assert caught.value.reason == "INVALID_INPUT"
    assert caught.value.metadata["field"] == message.partition(":")[0]


@pytest.mark.parametrize(("choice", "values"), [(["yes", "no"], ["yes", "no"]), ("yes", ["yes"]), ([], [])])
def test_a_choice_is_sent_even_where_it_leaves_none_for_the_gateway_to_refuse(choice: Any, values: list[str]) -> None:
    wanted = generate_request("?", choice=choice).response_format
    assert (wanted.WhichOneof("constraint"), list(wanted.choice.values)) == ("choice", values)


@pytest.mark.parametrize("messages", [None, "", []])
def test_with_a_recording_there_need_be_no_messages(messages: Any) -> None:
    assert not generate_request(messages, audio=b"wav").messages
    assert not generate_request(messages, spoken=True).messages
    system = generate_request(messages, audio=b"wav", system="Be brief.").messages
    assert [message.content for message in system] == ["Be brief."]


def test_a_question_beside_a_recording_is_kept() -> None:
    request = generate_request("Is that so?", audio=b"wav")
    assert (request.messages[0].content, request.audio.data) == ("Is that so?", b"wav")


_BIG = pb.Image(data=b"x" * 3_000_000)
_TEXT = pb.GenerateRequest(messages=[chat_pb2.Message(content="x" * 5_000_000)])


@pytest.mark.parametrize(
    ("request_", "advice"),
    [
        (_TEXT, "send shorter messages"),
        (pb.GenerateRequest(images=[_BIG, _BIG]), "send fewer or smaller images"),
        (pb.GenerateRequest(images=[_BIG], audio=pb.Audio(data=_BIG.data)), "send a shorter or a compressed recording"),
        (pb.GenerateBatchRequest(requests=[_TEXT]), "send fewer requests in one batch"),
        (pb.ConverseRequest(options=pb.ConverseOptions(request=_TEXT)), "send shorter messages"),
        (vision_pb2.ClassifyRequest(images=[vision_pb2.Image(data=_BIG.data)] * 2), "send fewer or smaller images"),
    ],
)
def test_too_much_for_one_message_is_refused_with_limit_value_and_a_way_out(request_: Any, advice: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        refuse_too_large(request_)
    size = request_.ByteSize()
    assert caught.value.message.startswith(f"request: at most {MAX_MESSAGE_BYTES} bytes, got {size}; {advice}")
    assert caught.value.metadata == {
        "field": "request",
        "limit": f"at most {MAX_MESSAGE_BYTES} bytes",
        "value": str(size),
    }


@pytest.mark.parametrize("encoding", ["pcm_s16le", "pcm_f32le"])
def test_long_blocks_are_cut_between_samples(encoding: Any) -> None:
    parts = list(live_blocks(b"x" * 100_000, AudioFormat(encoding)))
    assert [len(part) for part in parts] == [65_536, 34_464]
    assert list(live_blocks(b"", AudioFormat(encoding))) == []


def test_tools_calls_and_results_are_sent() -> None:
    call = ToolCall("1", "clock", '{"city": "Oslo"}')
    result = Message("tool", "23:59", tool_call_id="1")
    turns = [Message("user", "Late?"), Message("assistant", tool_calls=[call]), result]
    clock = Tool("clock", "Tells the time.", {"type": "object"}, strict=True)
    request = generate_request(turns, tools=[clock], tool_choice="clock", parallel_tool_calls=False)
    assert request.messages[1].tool_calls[0] == chat_pb2.ToolCall(id="1", name="clock", arguments=call.arguments)
    assert (request.messages[2].role, request.messages[2].tool_call_id) == (chat_pb2.ROLE_TOOL, "1")
    (tool,) = request.tools
    assert (tool.name, tool.parameters, tool.strict) == ("clock", '{"type": "object"}', True)
    assert (request.tool_choice.name, request.HasField("parallel_tool_calls")) == ("clock", True)
    assert generate_request("?", tool_choice="required").tool_choice.mode == chat_pb2.TOOL_MODE_REQUIRED
    assert call.parsed() == {"city": "Oslo"}


def test_sampling_options_are_sent() -> None:
    sampling = generate_request("?", logit_bias={7: -100}, frequency_penalty=0.5, top_logprobs=0).sampling
    assert [(each.token, each.bias) for each in sampling.logit_bias] == [(7, -100)]
    assert (sampling.frequency_penalty, sampling.HasField("top_logprobs")) == (0.5, True)
    assert not sampling.HasField("presence_penalty")


def test_tools_of_the_mesh_are_sent_with_their_options() -> None:
    given = ["news", MeshTool("weather", {"city": "Oslo"}), MeshTool("radar", offered=True), MeshTool(source="files")]
    request = generate_request("?", mesh_tools=given, tool_calls=1)
    assert list(request.mesh_tools) == [
        pb.MeshTool(name="news"),
        pb.MeshTool(name="weather", arguments='{"city": "Oslo"}'),
        pb.MeshTool(name="radar", offered=True),
        pb.MeshTool(source="files"),
    ]
    assert (request.tool_limits.calls, request.tool_limits.HasField("steps")) == (1, False)
    for wrong in (MeshTool(), MeshTool("a", source="b")):
        with pytest.raises(InvalidArgument, match=r"mesh_tools\[0\]: a name or a source"):
            generate_request("?", mesh_tools=[wrong])


def test_a_guard_is_asked_for_by_what_it_looks_for() -> None:
    asked = generate_request("?", guard={"personal": "mask", "answer_secrets": "refuse"}).guard
    assert asked == pb.GuardPolicy(personal=pb.GUARD_ACTION_MASK, answer_secrets=pb.GUARD_ACTION_REFUSE)
    assert not generate_request("?").HasField("guard")
    with pytest.raises(InvalidArgument, match="guard"):
        generate_request("?", guard={"nobody": "mask"})
    with pytest.raises(InvalidArgument, match=r"guard\[personal\]"):
        generate_request("?", guard={"personal": "hide"})
