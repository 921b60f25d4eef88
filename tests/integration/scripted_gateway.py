"""A scripted gateway: it plays back events instead of answering, so that a client meets whatever a test needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from tests.integration.scripted import Scripted, serving

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


class ScriptedGateway(Scripted, gateway_pb2_grpc.GatewayServiceServicer):
    """Plays events."""

    Generate = GenerateBatch = Scripted.answer
    Converse = Scripted.talk


G = TypeVar("G", bound=ScriptedGateway)


@asynccontextmanager
async def serve_script(scripted: G | None = None) -> AsyncIterator[G]:
    """A scripted gateway on a free loopback port; its `target` says which."""
    async with serving(
        scripted or cast("G", ScriptedGateway()), gateway_pb2_grpc.add_GatewayServiceServicer_to_server
    ) as gateway:
        yield gateway


def event(**kind: Any) -> pb.GenerateResponse:
    """A message with one event."""
    return pb.GenerateResponse(events=[pb.Event(**kind)])


def accepted() -> pb.GenerateResponse:
    plan = [
        pb.PlannedStage(name="cache", budget_ms=60),
        pb.PlannedStage(name="llm", budget_ms=240, required=True, after=["cache"]),
    ]
    return event(accepted=pb.Accepted(trace_id=TRACE_ID, budget_ms=300, plan=plan))


def deltas(*texts: str) -> Iterable[pb.GenerateResponse]:
    return (event(delta=pb.TextDelta(text=text, tokens=1)) for text in texts)


def stage(name: str = "cache", detail: str = "miss") -> pb.Stage:
    return pb.Stage(name=name, budget_ms=60, spent_ms=2.5, started_ms=0.5, outcome=pb.STAGE_OUTCOME_OK, detail=detail)


def final(text: str = "Paris.", **fields: Any) -> pb.Final:
    defaults: dict[str, Any] = {
        "finish_reason": chat_pb2.FINISH_REASON_STOP,
        "model": "demo-llm",
        "usage": chat_pb2.Usage(prompt_tokens=12, completion_tokens=3, drafted_tokens=4, accepted_tokens=2),
        "cache": pb.CacheReport(verdict=pb.CACHE_VERDICT_MISS, similarity=0.25),
        "stages": [stage(), pb.Stage(name="llm", budget_ms=240, spent_ms=80, started_ms=3, outcome=1)],
        "ttft_ms": 41.5,
        "total_ms": 83.0,
        "trace_id": TRACE_ID,
        "budget_ms": 300,
    }
    return pb.Final(text=text, **{**defaults, **fields})


def answer(*texts: str, **fields: Any) -> list[pb.GenerateResponse]:
    """The events of a whole answer."""
    return [
        accepted(),
        event(stage=stage()),
        *deltas(*texts),
        event(final=final("".join(texts), **fields)),
    ]


def spoken(turn: int = 0, **kind: Any) -> pb.ConverseResponse:
    """A message of a conversation."""
    return pb.ConverseResponse(turn=turn, **kind)


def transcript(text: str, confirmed: int | None = None) -> pb.Transcript:
    """The final transcript or, with `confirmed`, the one so far."""
    words = len(text.split()) if confirmed is None else confirmed
    return pb.Transcript(text=text, confirmed_words=words, final=confirmed is None)


def turn(number: int, question: str, *texts: str, **fields: Any) -> list[pb.ConverseResponse]:
    """The messages of a whole turn."""
    said = [
        spoken(number, speech_started={"at_s": 0.5}),
        spoken(number, transcript=transcript(question[:-3], len(question.split()) - 1)),
        spoken(number, transcript=transcript(question)),
    ]
    return [*said, *(spoken(number, answer=message) for message in answer(*texts, **fields))]
