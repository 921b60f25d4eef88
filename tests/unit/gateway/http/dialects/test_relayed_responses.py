"""A provider's own events of a response, on their way to a client of the same API, and what the gateway ends itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest
from pydantic import TypeAdapter

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.dialects.responses_request import read_response
from services.gateway.http.errors import ErrorResponse
from services.gateway.http.fields import Fields
from tests.recorded_response import (
    CALL,
    ID,
    RESPONSE,
    THOUGHT,
    Event,
    begun,
    called,
    ended,
    message,
    numbered,
    said,
    thought,
)

CUT = pb.Final(finish_reason=chat_pb2.FINISH_REASON_BUDGET, text="Tok")
BROKEN = ErrorResponse(503, "server_error", "interrupted", "The model broke.")


@cache
def makers() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


def relayed(events: Iterable[Event]) -> pb.Event:
    return pb.Event(relayed=pb.Relayed(events=[json.dumps(event).encode() for event in events]))


def delta(text: str, *, in_relayed: bool = False) -> pb.Event:
    return pb.Event(delta=pb.TextDelta(text=text), in_relayed=in_relayed)


def events_in(data: bytes) -> list[dict[str, Any]]:
    events = [json.loads(line.removeprefix(b"data: ")) for line in data.splitlines() if line.startswith(b"data: ")]
    for event in events:
        makers().validate_python(event)
    return events


def writer() -> ResponseWriter:
    return ResponseWriter(read_response(Fields({"model": "m", "input": "?"}), {}, {"m"}), "1")


def rest(events: Iterable[Event], final: pb.Final = CUT) -> list[dict[str, Any]]:
    """The gateway's events after `events` of a provider whose stream broke."""
    own, events = writer(), list(events)
    assert events_in(own.chunk(relayed(events))) == events
    assert own.chunk(delta("Tok", in_relayed=True)) == b""
    return events_in(own.end(final))


def test_relayed_events_are_unchanged_and_the_last_has_the_report() -> None:
    own = writer()
    assert events_in(own.chunk(relayed(RESPONSE[:7]))) == list(RESPONSE[:7])
    assert events_in(own.chunk(relayed(RESPONSE[7:]))) == list(RESPONSE[7:-1])
    (last,) = events_in(own.end(pb.Final(model="m")))
    assert last["response"].pop("hedgerow")["model"] == "m"
    assert last == RESPONSE[-1]


def test_an_answer_in_one_piece_is_the_response_of_the_last_event() -> None:
    own = writer()
    own.gather(relayed(RESPONSE))
    own.gather(delta("Tokyo.", in_relayed=True))
    whole = own.whole(pb.Final())
    assert {name: given for name, given in whole.items() if name != "hedgerow"} == RESPONSE[-1]["response"]


def test_an_unstreamed_answer_with_a_replacement_is_the_gateways() -> None:
    own = writer()
    own.gather(relayed(RESPONSE))
    own.gather(delta("Rome."))
    whole = own.whole(pb.Final(text="Rome.", finish_reason=chat_pb2.FINISH_REASON_STOP))
    assert whole["output"][0]["content"][0]["text"] == "Rome."


def test_a_text_that_is_cut_is_ended_by_the_gateway_with_the_providers_id() -> None:
    events = numbered([*begun(), *thought(), *said("Tok", index=1)[:3]])
    text, part, item, last = rest(events)
    assert [each["type"].removeprefix("response.") for each in (text, part, item, last)] == [
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    assert [each["sequence_number"] for each in (text, part, item, last)] == list(range(len(events), len(events) + 4))
    assert (text["text"], text["output_index"], item["item"]["status"]) == ("Tok", 1, "incomplete")
    response = last["response"]
    assert (response["id"], response["status"]) == (ID, "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"] == [THOUGHT, {**message("Tok"), "status": "incomplete"}]
    assert response["hedgerow"]["finish_reason"] == "budget"


def test_a_call_that_is_cut_is_ended_as_far_as_it_came() -> None:
    done, item, last = rest(numbered([*begun(), *called()[:2]]))
    assert (done["type"], done["arguments"]) == ("response.function_call_arguments.done", '{"city":')
    assert item["item"] == {**CALL, "arguments": '{"city":', "status": "incomplete"}
    assert last["response"]["output"] == [item["item"]]


def test_a_thought_that_is_cut_is_ended() -> None:
    text, part, item, last = rest(numbered([*begun(), *thought()[:3]]))
    assert (text["type"], text["text"]) == ("response.reasoning_summary_text.done", "Japan, ")
    assert part["type"] == "response.reasoning_summary_part.done"
    assert item["item"]["summary"] == [{"type": "summary_text", "text": "Japan, "}]
    assert last["type"] == "response.incomplete"


def test_a_response_that_breaks_has_failed_under_the_providers_id() -> None:
    own = writer()
    own.chunk(relayed(numbered([*begun(), *said("Tok")[:3]])))
    *_, error, failed = events_in(own.broken(BROKEN))
    assert (error["type"], error["code"]) == ("error", "interrupted")
    assert (failed["type"], failed["response"]["id"]) == ("response.failed", ID)
    assert failed["response"]["output"][0]["content"][0]["text"] == "Tok"


def test_a_response_that_breaks_before_its_first_event_begins_all_the_same() -> None:
    begins, _, error, failed = events_in(writer().broken(BROKEN))
    assert (begins["type"], error["code"]) == ("response.created", "interrupted")
    assert failed["response"]["id"] == begins["response"]["id"]


def test_a_response_that_breaks_is_not_said_to_be_stored() -> None:
    order = read_response(Fields({"model": "m", "input": "?"}), {}, {"m"})
    order.stored = order.echo = {**order.echo, "store": True}
    begins, *_, failed = events_in(ResponseWriter(order, "1").broken(BROKEN))
    assert (begins["response"]["store"], failed["response"]["store"]) == (True, False)


def test_text_after_a_broken_provider_is_another_item() -> None:
    own = writer()
    own.chunk(relayed(numbered([*begun(), *said("Tok")[:3]])))
    data = own.chunk(delta("Rome."))
    events = events_in(data + own.end(pb.Final(text="Rome.", finish_reason=chat_pb2.FINISH_REASON_STOP)))
    assert [each["item"]["status"] for each in events if each["type"] == "response.output_item.done"] == [
        "completed", "completed",
    ]  # fmt: skip
    texts = [item["content"][0]["text"] for item in events[-1]["response"]["output"]]
    assert texts == ["Tok", "Rome."]
    assert [each["output_index"] for each in events if each["type"] == "response.output_item.added"] == [1]


@pytest.mark.parametrize("reasoning", ["", "Japan, "])
def test_an_answer_without_text_has_an_empty_message_in_a_stream_as_in_one_piece(reasoning: str) -> None:
    final = pb.Final(reasoning=reasoning, finish_reason=chat_pb2.FINISH_REASON_LENGTH)
    own = writer()
    data = own.chunk(pb.Event(reasoning=pb.ReasoningDelta(text=reasoning))) if reasoning else b""
    streamed, whole = events_in(data + own.end(final))[-1]["response"]["output"], writer().whole(final)["output"]
    for item in (*streamed, *whole):
        del item["id"]
    assert streamed == whole
    assert streamed[-1]["content"][0]["text"] == ""


def test_the_writer_of_the_first_event_writes_the_rest() -> None:
    own = writer()
    data = own.chunk(delta("Paris, "))
    assert own.chunk(relayed(RESPONSE)) == b""
    data += own.chunk(delta("Tokyo.", in_relayed=True))
    data += own.end(pb.Final(text="Paris, Tokyo.", finish_reason=chat_pb2.FINISH_REASON_STOP))
    events = events_in(data)
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert [each["type"] for each in events].count("response.created") == 1
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Paris, Tokyo."


ODD: list[Mapping[str, Any]] = [
    {"type": "response.output_text.delta", "output_index": 9, "content_index": 0, "delta": "x"},
    {"type": "response.output_text.delta", "delta": 7, "output_index": 0, "content_index": 0},
    {"type": "response.output_item.added", "output_index": 1},
    {"type": "response.content_part.added", "output_index": 0},
    {"type": "response.created", "response": None},
    {"type": "response.of_tomorrow", "seen": [1]},
    {"type": "response.output_item.done", "output_index": "x", "item": []},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": [], "content": "x", "summary": [1]}},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_event_that_cannot_be_followed_leaves_as_it_came(odd: Mapping[str, Any]) -> None:
    own = writer()
    own.chunk(relayed(numbered([*begun(), *said("Tok")[:3]])))
    data = own.chunk(relayed([odd]))
    assert json.loads(data.split(b"data: ")[1]) == odd
    assert b'"response.incomplete"' in own.end(CUT)


def test_an_end_by_a_limit_of_the_providers_is_relayed() -> None:
    limit = {"incomplete_details": {"reason": "max_output_tokens"}}
    own = writer()
    last = numbered([*begun(), *said("Tok"), ended([message("Tok")], "incomplete", **limit)])
    own.chunk(relayed(last))
    (end,) = events_in(own.end(pb.Final(finish_reason=chat_pb2.FINISH_REASON_LENGTH)))
    assert end["response"]["incomplete_details"] == limit["incomplete_details"]
