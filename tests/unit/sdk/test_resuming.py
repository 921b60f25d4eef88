"""The request to another gateway after the first one is lost."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from hedgerow._answer_stream_aio import AsyncAnswerStream
from hedgerow._errors import HedgerowError, NotFound, ResourceExhausted, Unavailable
from hedgerow._outgoing import Outgoing
from hedgerow._peer import Peer
from hedgerow._resuming import Resuming
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.clock import PausedClock
from tests.unit.sdk.scripted_call import ScriptedCall

LOST = Unavailable("lost", reason="CONNECTION_LOST")
NO_GATEWAY = Unavailable("nobody", reason="NO_GATEWAY")
NOT_KEPT = NotFound("not kept", reason="ANSWER_NOT_KEPT")


class Scene:
    """One answer, asked for with these fields and a call's deadline of 3 s."""

    def __init__(self, **fields: object):
        self.clock = PausedClock()
        request = pb.GenerateRequest(**({"budget_ms": 2_000} | fields))
        self.resuming = Resuming(Outgoing(request, 3.0, ()), self.clock)

    def said(self, text: str, tokens: int = 1) -> None:
        self.resuming.record(pb.Event(delta=pb.TextDelta(text=text, tokens=tokens)))

    def asked(self, problem: HedgerowError = LOST) -> Any:
        rest = self.resuming.after(problem)
        return rest and rest.request


def test_before_the_first_text_the_same_is_asked_within_what_is_left_of_the_budget():
    scene = Scene(attempt=1, realtime=True)
    scene.clock.advance(0.5)
    assert scene.asked() == pb.GenerateRequest(budget_ms=1_500, attempt=2, realtime=True)


def test_from_then_on_a_model_goes_on_from_the_text():
    scene = Scene(sampling=chat_pb2.Sampling(max_tokens=10))
    scene.said("Once upon", 2)
    scene.said(" a time")
    scene.clock.advance(1.2)
    asked = scene.asked()
    assert (asked.prefix, asked.sampling.max_tokens, asked.budget_ms, asked.attempt) == ("Once upon a time", 7, 800, 0)
    scene.said(" there")
    assert scene.asked().prefix == "Once upon a time there"


def test_the_report_of_the_last_gateway_counts_the_text_of_those_before_as_a_part_of_the_answer() -> None:
    scene = Scene()
    for text in ("Once", " upon"):
        scene.resuming.record(pb.Event(delta=pb.TextDelta(text=text, tokens=1, logprobs=[{"token": text}])))
    assert scene.asked()
    usage = chat_pb2.Usage(prompt_tokens=12, cached_prompt_tokens=11, completion_tokens=3)
    final = pb.Event(final=pb.Final(usage=usage, logprobs=[{"token": " a"}, {"token": " time"}, {"token": "."}]))
    scene.resuming.record(final)
    assert final.final.usage == chat_pb2.Usage(prompt_tokens=10, cached_prompt_tokens=10, completion_tokens=5)
    assert [each.token for each in final.final.logprobs] == ["Once", " upon", " a", " time", "."]


def test_the_gateways_own_budget_is_not_had_twice():
    scene = Scene(budget_ms=None)
    scene.resuming.record(pb.Event(accepted=pb.Accepted(budget_ms=1_000)))
    scene.clock.advance(0.25)
    assert scene.asked().budget_ms == 750


@pytest.mark.parametrize("spent_s", [2.0, 3.5])
def test_when_the_time_is_over_no_other_gateway_is_asked(spent_s: float):
    scene = Scene()
    scene.clock.advance(spent_s)
    assert scene.asked() is None


@pytest.mark.parametrize(
    "problem", [Unavailable("no model", reason="MODEL_UNAVAILABLE"), ResourceExhausted("busy"), NO_GATEWAY]
)
def test_errors_of_a_gateway_and_unreachable_targets_are_not_resumed(problem: HedgerowError):
    assert Scene().asked(problem) is None


def test_a_gateway_that_hung_up_at_once_may_be_one_that_stops():
    assert Scene().asked(Unavailable("no connection", reason="HUNG_UP")) == pb.GenerateRequest(
        budget_ms=2_000, attempt=1
    )


def test_an_answer_may_lose_two_gateways():
    scene = Scene()
    assert scene.asked() is not None
    assert scene.asked(NO_GATEWAY) is not None
    assert scene.asked() is None


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [chat_pb2.Tool(name="clock")]},
        {"mesh_tools": [pb.MeshTool(name="clock")]},
        {"response_format": chat_pb2.ResponseFormat(regex="a+")},
        {"sampling": chat_pb2.Sampling(max_tokens=2)},
    ],
)
def test_requests_that_cannot_be_resumed_are_repeated_before_the_first_text_alone(fields: dict[str, object]):
    assert Scene(**fields).asked() is not None
    scene = Scene(**fields)
    scene.said("Once upon", 2)
    assert scene.asked() is None


def test_a_thought_or_a_call_is_not_begun_again():
    for event in (pb.Event(reasoning=pb.ReasoningDelta(text="Hm.")), pb.Event(tool_call=chat_pb2.ToolCallDelta())):
        scene = Scene()
        scene.resuming.record(event)
        assert scene.asked() is None


def test_a_single_attempt_is_not_resumed():
    assert Scene(single_attempt=True).asked() is None


def test_with_a_key_the_same_is_asked_from_where_it_was():
    scene = Scene(idempotency_key="k", response_format=chat_pb2.ResponseFormat(json_object=True), single_attempt=True)
    scene.resuming.record(pb.Event(accepted=pb.Accepted(budget_ms=2_000)))
    scene.said("{")
    scene.resuming.record(pb.Event(heartbeat=pb.Heartbeat()))
    scene.clock.advance(0.5)
    asked = scene.asked()
    assert (asked.idempotency_key, asked.events_seen, asked.budget_ms, asked.prefix) == ("k", 2, 1_500, "")
    assert scene.asked(NOT_KEPT) is None  # a second attempt


def test_if_the_answer_is_not_stored_the_request_continues_the_text_without_the_key():
    scene = Scene(idempotency_key="k")
    scene.said("Once")
    scene.asked()
    asked = scene.asked(NOT_KEPT)
    assert (asked.idempotency_key, asked.events_seen, asked.prefix) == ("", 0, "Once")
    assert scene.asked(NOT_KEPT) is None


async def test_a_stream_goes_on_from_its_text_where_the_next_gateway_has_not_kept_the_answer() -> None:
    status = status_pb2.Status(code=code_pb2.NOT_FOUND, message="not kept")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="ANSWER_NOT_KEPT"))
    details = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    lost = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "Socket closed")
    not_kept = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), details, "not kept")
    first, last = (pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text=text))]) for text in ("Par", "is."))
    final = pb.GenerateResponse(events=[pb.Event(final=pb.Final(text="Paris."))])
    calls, asked = iter([[first, lost], [not_kept], [last, final]]), list[pb.GenerateRequest]()

    def begin(out: Outgoing[pb.GenerateRequest]) -> ScriptedCall:
        asked.append(out.request)
        return ScriptedCall(*next(calls))

    request = pb.GenerateRequest(budget_ms=60_000, idempotency_key="k")
    stream = AsyncAnswerStream(begin, Outgoing(request, 61.0, ()), Peer("x:1"))
    assert [sentence async for sentence in stream.sentences()] == ["Paris."]
    assert [(each.idempotency_key, each.events_seen, each.prefix) for each in asked[1:]] == [
        ("k", 1, ""),
        ("", 0, "Par"),
    ]


def test_from_a_text_that_replaced_another_a_model_goes_on_without_the_others_tokens() -> None:
    scene = Scene(sampling=chat_pb2.Sampling(max_tokens=100))
    scene.said("It may be that", 90)
    scene.resuming.record(pb.Event(patch=pb.Patch(stage="llm", text="It is ", replaces=True)))
    scene.said("Pa", 5)
    asked = scene.asked()
    assert (asked.prefix, asked.sampling.max_tokens) == ("It is Pa", 95)


def test_a_late_result_of_a_tool_is_no_text_of_the_answer() -> None:
    scene = Scene()
    scene.said("Pa")
    scene.resuming.record(pb.Event(patch=pb.Patch(stage="tool:news", text="a fox")))
    assert scene.asked().prefix == "Pa"


def test_a_cascade_goes_on_without_one_where_its_text_has_passed() -> None:
    scene = Scene(cascade=pb.Cascade())
    scene.said("Pa")
    rest = scene.asked()
    assert (rest.prefix, rest.HasField("cascade")) == ("Pa", False)
    scene = Scene(cascade=pb.Cascade(at_once=True))
    scene.said("Pa")
    assert scene.asked() is None


def test_the_pause_before_the_next_gateway_is_asked_is_a_part_of_the_budget():
    scene = Scene()
    scene.clock.advance(1.7)
    rest = scene.resuming.after(LOST, pause_s=0.15)
    assert rest
    assert (rest.request.budget_ms, rest.timeout_s) == (150, pytest.approx(1.15))
    assert scene.resuming.after(LOST, pause_s=0.3) is None
