"""A provider's own events, on their way to a client of the same API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.chat_relay import GrowingCompletion, RelayedChat
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.dialects.messages_relay import GrowingMessage, RelayedMessages
from services.gateway.http.request_options import RequestOptions


def chunk(delta: dict[str, Any], index: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": index, "delta": delta, **more}]}


def made_of(whole: GrowingCompletion | GrowingMessage, events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for event in events:
        whole.add(event)
    return whole.whole()


def test_chunks_make_one_completion_with_all_their_fields() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    logprob = {"token": "a", "logprob": -0.1}
    whole = made_of(
        GrowingCompletion(),
        [
            chunk({"role": "assistant", "content": "To"}, logprobs={"content": [logprob]}),
            chunk({"content": "kyo", "tool_calls": [call]}, logprobs={"content": [logprob]}),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}, index=0),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}], "field_of_tomorrow": {"a": "x"}}),
            {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "service_tier": None},
            {"id": "c", "choices": [], "usage": {"total_tokens": 3}, "system_fingerprint": "fp"},
        ],
    )
    (choice,) = whole["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "Tokyo",
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"a":1}'}}],
        "field_of_tomorrow": {"a": "x"},
    }
    assert choice["logprobs"] == {"content": [logprob, logprob]}
    assert (choice["finish_reason"], whole["usage"]) == ("tool_calls", {"total_tokens": 3})
    assert (whole["object"], whole["system_fingerprint"]) == ("chat.completion", "fp")


def test_fields_repeated_in_each_chunk_are_merged_once() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{"}}
    more = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "}"}}
    whole = made_of(GrowingCompletion(), [chunk({"role": "assistant", "tool_calls": [each]}) for each in (call, more)])
    (made,) = whole["choices"][0]["message"]["tool_calls"]
    assert made == {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


def test_fields_that_a_choice_has_in_several_chunks_are_those_of_the_last() -> None:
    safe, low = ({"hate": {"filtered": False, "severity": each}} for each in ("safe", "low"))
    pieces = [
        {**chunk({"content": "To"}, content_filter_results=safe, finish_reason=None), "model": "m"},
        chunk({"content": "kyo"}, content_filter_results=safe, finish_reason="stop"),
        {"id": "", "model": "", "choices": [{"index": 0, "finish_reason": None, "content_filter_results": low}]},
        chunk({"content": ""}, finish_reason="stop"),
    ]
    whole = made_of(GrowingCompletion(), pieces)
    (choice,) = whole["choices"]
    assert (choice["message"], choice["finish_reason"]) == ({"content": "Tokyo"}, "stop")
    assert (choice["content_filter_results"], whole["id"], whole["model"]) == (low, "c", "m")


def test_thoughts_of_two_types_with_one_index_stay_apart() -> None:
    text = {"type": "reasoning.text", "format": "google-gemini-v1", "index": 0}
    sealed = {"type": "reasoning.encrypted", "data": "eA==", "format": "google-gemini-v1", "index": 0}
    thoughts = [{**text, "text": "I "}, {**text, "text": "think."}, sealed]
    pieces = [chunk({"reasoning_details": [thought], "channel": "analysis"}) for thought in thoughts]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["reasoning_details"] == [{**text, "text": "I think."}, sealed]
    assert choice["message"]["channel"] == "analysis"


@pytest.mark.parametrize(
    ("second", "arguments"),
    [
        ({"id": "b", "function": {"name": "weather", "arguments": "{}"}}, ["{}", "{}"]),  # Gemini
        ({"id": "b", "function": {"name": None, "arguments": "}"}}, ["{}}"]),  # vLLM 0.8 had an id of each piece
    ],
)
@pytest.mark.parametrize("index", [{"index": 0}, {}], ids=["one index", "none"])
def test_calls_with_one_index_are_separated_by_ids_with_names(
    second: dict[str, Any], arguments: list[str], index: dict[str, int]
) -> None:
    first = {**index, "id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    calls = [first, {**index, "type": "function", **second}]
    pieces = [*[chunk({"tool_calls": [each]}) for each in calls], chunk({}, finish_reason="tool_calls")]
    one_piece, stream = RelayedChat(usage=True), RelayedChat(usage=True)
    one_piece.gather(sent(*pieces))
    made = one_piece.whole()["choices"][0]["message"]["tool_calls"]
    assert [each["function"]["arguments"] for each in made] == arguments
    came = [json.loads(line[6:])["choices"][0]["delta"] for line in stream.chunks(sent(*pieces)).split(b"\n\n")[:-1]]
    indices = [each["index"] for delta in came for each in delta["tool_calls"]]
    assert indices == [0, len(arguments) - 1]


def test_thoughts_in_parts_and_then_a_text_alone_are_both_kept() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    pieces = [chunk({"role": "assistant", "content": [thought]}), chunk({"content": "To"}), chunk({"content": "kyo"})]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["content"] == [thought, {"type": "text", "text": "Tokyo"}]


def test_a_text_before_a_list_of_parts_is_kept() -> None:
    reference = {"type": "reference", "reference_ids": [1]}
    pieces = [chunk({"content": each}) for each in ("To", "ky", [reference], "o", ".")]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    texts = [{"type": "text", "text": each} for each in ("Toky", "o.")]
    assert choice["message"]["content"] == [texts[0], reference, texts[1]]


def test_several_choices_stay_apart() -> None:
    whole = made_of(
        GrowingCompletion(), [chunk({"content": "b"}, index=1), chunk({"content": "a"}), chunk({"content": "a"})]
    )
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["aa", "b"]


def test_a_stream_that_said_nothing_after_its_finish_ends_with_the_account() -> None:
    relayed = RelayedChat(usage=True)
    assert relayed.chunks(sent(chunk({"content": "a"}))).startswith(b"data: ")
    assert not relayed.ended
    assert relayed.chunks(sent(ENDED)) == b""
    report, done = relayed.end({"model": "m"}).strip().split(b"\n\n")
    assert json.loads(report.removeprefix(b"data: "))["hedgerow"] == {"model": "m"}
    assert done == b"data: [DONE]"


def sent(*chunks: dict[str, Any]) -> list[bytes]:
    return [json.dumps(each).encode() for each in chunks]


AZURE = {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
ENDED = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
USED = {"id": "c", "choices": [], "usage": {"total_tokens": 3}}


def test_a_chunk_about_the_prompt_alone_is_no_end() -> None:
    relayed, (prompt, text) = RelayedChat(usage=False), sent(AZURE, chunk({"content": "a"}))
    assert relayed.chunks([prompt]) == b"data: " + prompt + b"\n\n"
    assert not relayed.ended
    assert relayed.chunks([text]) == b"data: " + text + b"\n\n"
    assert relayed.same == {"id": "c"}


def test_usage_is_for_clients_that_ask_for_it_wherever_it_comes() -> None:
    for usage in (True, False):
        relayed, (used, ended, more) = RelayedChat(usage=usage), sent(USED, ENDED, {"id": "c", "citations": ["x"]})
        assert relayed.chunks([used]) == (b"data: " + used + b"\n\n" if usage else b"")
        assert relayed.chunks([ended, used, more]) == b""
        chunks = relayed.end({}).split(b"\n\n")
        assert [b"usage" in each for each in chunks] == [False, *([True] if usage else []), False, False, False]
        assert chunks[:-3] == [b"data: " + each for each in ((ended, used) if usage else (ended,))]


def test_events_make_one_message_with_all_their_fields() -> None:
    message = made_of(
        GrowingMessage(),
        [
            {"type": "message_start", "message": {"id": "m", "content": [], "usage": {"input_tokens": 3}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "input": {}}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ":1}"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "a"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"c": 1}}},
            {"type": "content_block_start", "index": 2, "content_block": {"type": "tomorrow"}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "tomorrow_delta", "seen": 7}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
            {"type": "message_stop"},
        ],
    )
    assert message["content"] == [
        {"type": "tool_use", "id": "t", "input": {"a": 1}},
        {"type": "text", "text": "ab", "citations": [{"c": 1}]},
        {"type": "tomorrow", "seen": 7},
    ]
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert message["stop_reason"] == "tool_use"


def test_events_without_an_end_make_no_message() -> None:
    assert made_of(GrowingMessage(), [{"type": "message_start", "message": {"id": "m"}}]) == {}


START = {"type": "message_start", "message": {"id": "m", "stop_reason": None, "usage": {"input_tokens": 3}}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "input": {}}}
STOP = {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 2}}


def grown(**delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": delta}


@pytest.mark.parametrize(("pieces", "given"), [(('{"a":', ""), '{"a":'), (("[1", "]"), "[1]")])
def test_arguments_that_were_cut_or_are_no_object_are_passed_on_unchanged(pieces: tuple[str, ...], given: str) -> None:
    deltas = [grown(type="input_json_delta", partial_json=piece) for piece in pieces]
    message = made_of(GrowingMessage(), [START, BLOCK, *deltas, STOP])
    assert message["content"] == [{"type": "tool_use", "id": "t", "input": {"arguments": given}}]


def test_the_end_of_a_message_may_come_in_several_events() -> None:
    relayed = RelayedMessages()
    more = {"type": "message_delta", "delta": {"stop_reason": None, "container": None}, "usage": {"output_tokens": 4}}
    first = relayed.chunks(sent(START, STOP))
    assert b"message_delta" not in first
    assert json.loads(relayed.chunks(sent(more)).partition(b"data: ")[2]) == STOP
    assert b'"output_tokens":4},"hedgerow"' in relayed.end({})
    message = made_of(GrowingMessage(), [START, STOP, more])
    assert (message["stop_reason"], message["container"]) == ("max_tokens", None)
    assert message["usage"] == {"input_tokens": 3, "output_tokens": 4}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_start", "index": "b", "content_block": {"type": "text"}},
        grown(type="citations_delta"),
        grown(type="signature_delta", signature=None),
        grown(type="text_delta", text=["a"]),
    ],
)
def test_events_that_make_no_message_say_nothing(event: dict[str, Any]) -> None:
    relayed = RelayedMessages()
    relayed.gather(sent(START, BLOCK, event, STOP))
    assert relayed.whole() == {}


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"index": "b", "delta": {"content": "a"}}]},
        {"choices": [{"index": [], "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}, 7]}}]},
    ],
)
def test_chunks_that_make_no_completion_say_nothing(event: dict[str, Any]) -> None:
    relayed = RelayedChat(usage=True)
    relayed.gather(sent(chunk({"content": "a"}), event, event, ENDED))
    assert relayed.whole() == {}


def test_chunks_without_an_end_make_no_completion() -> None:
    relayed = RelayedChat(usage=True)
    relayed.gather(sent(chunk({"content": "a"})))
    assert relayed.whole() == {}
    relayed.gather(sent(ENDED))
    assert relayed.whole()["choices"][0]["finish_reason"] == "stop"


def test_blocks_of_a_provider_that_are_open_stop_where_the_gateway_ends_the_answer_or_goes_on_with_it() -> None:
    for goes_on in (True, False):
        writer = MessageWriter(RequestOptions(pb.GenerateRequest(), "auto", stream=True), "1")
        block = {**BLOCK, "content_block": {"type": "text", "text": ""}}
        events = sent(START, block, grown(type="text_delta", text="a"))
        data = writer.chunk(pb.Event(relayed=pb.Relayed(events=events)))
        if goes_on:
            data += writer.chunk(pb.Event(delta=pb.TextDelta(text="b")))
        data += writer.end(pb.Final(text="ab", finish_reason=chat_pb2.FINISH_REASON_BUDGET))
        written = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
        more = [("content_block_start", 1), ("content_block_delta", 1), ("content_block_stop", 1)] if goes_on else []
        assert [(each["type"], each.get("index")) for each in written] == [
            ("message_start", None),
            ("content_block_start", 0),
            ("content_block_delta", 0),
            ("content_block_stop", 0),
            *more,
            ("message_delta", None),
            ("message_stop", None),
        ]


def test_sound_in_pieces_is_put_together_as_sound() -> None:
    pieces = [chunk({"audio": {"data": data}}) for data in ("eA==", "eXo=")]
    (choice,) = made_of(GrowingCompletion(), pieces)["choices"]
    assert choice["message"]["audio"]["data"] == "eHl6"


def test_choices_go_on_where_one_has_ended_and_are_ended_where_the_answer_is_cut() -> None:
    relayed = RelayedChat(usage=False)
    assert relayed.chunks(sent(chunk({"content": "a"}), chunk({"content": "b"}, 1), ENDED)).count(b"data: ") == 2
    assert b'"c"' in relayed.chunks(sent(chunk({"content": "c"}, 1)))
    assert (relayed.ended, relayed.unfinished(), relayed.held().count(b"stop")) == (False, [1], 1)
    relayed.chunks(sent({"id": "c", "choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}))
    assert relayed.ended
    assert relayed.end({}).count(b"finish_reason") == 2


@pytest.mark.parametrize("index", [[], {}, "x", None, 1.5], ids=repr)
def test_a_choice_whose_index_is_no_number_is_the_first_one(index: object) -> None:
    relayed = RelayedChat(usage=True)
    said = {"id": "c", "choices": [{"index": index, "delta": {"content": "a"}}]}
    assert relayed.chunks(sent(said)) == b"data: " + sent(said)[0] + b"\n\n"
    assert relayed.unfinished() == [0]
