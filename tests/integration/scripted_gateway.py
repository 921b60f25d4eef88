"""A scripted gateway: it plays back events instead of answering, so that a client meets whatever a test needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@dataclass
class Refusal:
    """A status with details, as the services' error boundary sends it."""

    code: str
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_delay_ms: int = 0

    async def send(self, context: Any) -> None:
        number = code_pb2.Code.Value(self.code)
        status = status_pb2.Status(code=number, message=self.message)
        details: list[Any] = [error_details_pb2.ErrorInfo(reason=self.reason, metadata=self.metadata)]
        if self.retry_delay_ms:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(self.retry_delay_ms)
            details.append(error_details_pb2.RetryInfo(retry_delay=delay))
        for detail in details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            status.details.append(packed)
        await context.abort(
            grpc.StatusCode[self.code], self.message, (("grpc-status-details-bin", status.SerializeToString()),)
        )


@dataclass
class Hold:
    """The gateway says nothing more until `release` is set."""

    release: asyncio.Event = field(default_factory=asyncio.Event)


Step = pb.GenerateResponse | pb.GenerateBatchResponse | Refusal | Hold


class ScriptedGateway(gateway_pb2_grpc.GatewayServiceServicer):
    """Plays `script` for every call, and keeps what it was asked."""

    def __init__(self) -> None:
        self.script: Sequence[Step] = []
        self.requests: list[Any] = []
        self.metadata: dict[str, str] = {}
        self.time_remaining_s: float | None = None
        self.cancelled = asyncio.Event()
        self.target = ""

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append(request)
        self.metadata = dict(context.invocation_metadata())
        self.time_remaining_s = context.time_remaining()
        try:
            for step in self.script:
                if isinstance(step, Refusal):
                    await step.send(context)
                elif isinstance(step, Hold):
                    await step.release.wait()
                else:
                    yield step
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    GenerateBatch = Generate


@asynccontextmanager
async def serve_script() -> AsyncIterator[ScriptedGateway]:
    """A scripted gateway on a free loopback port; its `target` says which."""
    gateway, server = ScriptedGateway(), grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    gateway_pb2_grpc.add_GatewayServiceServicer_to_server(gateway, server)  # type: ignore[no-untyped-call]
    gateway.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield gateway
    finally:
        await server.stop(0)


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
