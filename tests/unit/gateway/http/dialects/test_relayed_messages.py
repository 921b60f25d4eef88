"""Events of a provider of the Messages API, on their way to a client of the same API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.dialects.messages_relay import GrowingMessage, RelayedMessages
from services.gateway.http.request_options import RequestOptions
from tests.unit.gateway.http.dialects.test_relayed import made_of, sent


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
        more = ["content_block_start 1", "content_block_delta 1", "content_block_stop 1"] if goes_on else []
        assert [f"{each['type']} {each.get('index', '')}".rstrip() for each in written] == [
            "message_start", "content_block_start 0", "content_block_delta 0", "content_block_stop 0", *more,
            "message_delta", "message_stop",
        ]  # fmt: skip


def test_a_text_of_another_api_has_an_empty_list_of_citations_because_the_ai_sdk_refuses_null() -> None:
    writer = MessageWriter(RequestOptions(pb.GenerateRequest(), "auto"), "1")
    assert writer.whole(pb.Final(text="Hi."))["content"] == [{"type": "text", "text": "Hi.", "citations": []}]


def test_a_block_that_begins_twice_is_stopped_once() -> None:
    relayed = RelayedMessages()
    relayed.chunks(sent(START, BLOCK, BLOCK))
    assert relayed.stops().count(b"content_block_stop") == 2  # in its name and in its type
