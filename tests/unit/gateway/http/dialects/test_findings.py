"""Citations and late results in the streams of every API."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.tool.v1 import tool_pb2
from services.gateway.http.dialects.chat_answer import ChatWriter
from services.gateway.http.dialects.completions import CompletionWriter
from services.gateway.http.dialects.messages_answer import MessageWriter
from services.gateway.http.dialects.responses_answer import ResponseWriter
from services.gateway.http.dialects.writer import Write
from services.gateway.http.request_options import RequestOptions

FINAL = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP, model="m")
WRITERS = pytest.mark.parametrize("write", [ChatWriter, CompletionWriter, ResponseWriter, MessageWriter])
TIMES = ("created", "created_at", "completed_at", "sequence_number")

_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
_delta = _TEXT.map(lambda text: pb.Event(delta=pb.TextDelta(text=text)))
_thought = _TEXT.map(lambda text: pb.Event(reasoning=pb.ReasoningDelta(text=text)))
_citations = _TEXT.map(
    lambda source: pb.Event(citations=pb.Citations(tool="t", citations=[tool_pb2.Citation(source=source)]))
)
_patch = _TEXT.map(lambda text: pb.Event(patch=pb.Patch(stage="tool:t", text=text)))
EVENTS = st.lists(st.one_of(_delta, _thought, _citations, _patch))


def chunks(write: Write, events: list[pb.Event], *, findings: bool, usage: bool) -> list[dict[str, Any]]:
    """The events of a stream, without what differs from one to the next."""
    order = RequestOptions(pb.GenerateRequest(), stream=True, usage=usage, findings=findings)
    writer = write(order, "id1")
    data = b"".join(map(writer.chunk, events)) + writer.end(FINAL)
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line.startswith("data: {")]
    return [_timeless(json.loads(line)) for line in lines]


def _timeless(event: dict[str, Any]) -> dict[str, Any]:
    for each in (event, event.get("response", {})):
        for name in TIMES:
            each.pop(name, None)
    return event


def found(event: dict[str, Any]) -> Any:
    """The findings in the stream; the last event has the report."""
    beside = event.get("hedgerow") or event.get("response", {}).get("hedgerow") or {}
    return None if "trace_id" in beside else beside or None


def shown(event: pb.Event) -> Any:
    """A finding as HTTP callers get it."""
    match event.WhichOneof("kind"):
        case "citations":
            (place,) = event.citations.citations
            citation = {"source": place.source, "title": "", "text": "", "score": 0}
            return {"citations": [{"tool": "t", "citations": [citation]}]}
        case "patch":
            return {"patches": [{"stage": "tool:t", "text": event.patch.text}]}
    return None


@given(EVENTS)
def test_each_event_of_a_response_has_its_type_in_a_line_of_its_own(events: list[pb.Event]) -> None:
    writer = ResponseWriter(RequestOptions(pb.GenerateRequest()), "1")
    data = b"".join(map(writer.chunk, events)) + writer.end(FINAL)
    for event in data.decode().removesuffix("\n\n").split("\n\n"):
        named, written = event.split("\n")
        assert named == f"event: {json.loads(written.removeprefix('data: '))['type']}"


@WRITERS
@given(EVENTS, st.booleans())
def test_findings_come_in_events_of_their_own_and_change_no_other(
    write: Write, events: list[pb.Event], usage: bool
) -> None:
    without, with_them = (chunks(write, events, findings=wanted, usage=usage) for wanted in (False, True))
    assert [event for event in with_them if not found(event)] == without
    assert [each for each in map(found, with_them) if each] == [each for each in map(shown, events) if each]


@WRITERS
def test_findings_are_left_out_of_requests_that_do_not_ask_for_them(write: Write) -> None:
    event = pb.Event(patch=pb.Patch(stage="tool:t", text="late"))
    assert write(RequestOptions(pb.GenerateRequest(), stream=True), "id1").chunk(event) == b""
