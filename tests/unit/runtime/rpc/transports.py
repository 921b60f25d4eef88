"""The ways to a service: over gRPC, on a standing stream, and within the process.

The stubs are the gateway's, the boundary and its servicers are real; a servicer that is scripted stands for an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.upstream.llm import Llm
from services.runtime.process.health import Health
from services.runtime.process.server import set_health
from services.runtime.rpc.boundary import Call
from services.runtime.rpc.in_process import Address, Hosted, InProcessChannel
from services.runtime.rpc.standing.channel import StandingChannel
from tests.unit.runtime.served import served
from tests.waiting import until

LLM = llm_pb2.DESCRIPTOR.services_by_name["LLMService"]
ROUTER = router_pb2.DESCRIPTOR.services_by_name["RouterService"]
SERVICES = [LLM, ROUTER]
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
STOP = chat_pb2.FINISH_REASON_STOP


@dataclass
class Scripted:
    """Both services. `work` is done before the first reply; `error` is raised after `texts`."""

    texts: tuple[str, ...] = ("Pa", "ris")
    work: Callable[[], Awaitable[object]] | None = None
    error: Exception | None = None
    calls: list[Call] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    stopped: asyncio.Event = field(default_factory=asyncio.Event)  # a call was cancelled, or its generator closed
    sent: int = 0

    async def Generate(self, request: llm_pb2.GenerateRequest, call: Call) -> AsyncIterator[llm_pb2.GenerateResponse]:
        self.calls.append(call)
        self.requests.append(request)
        reply = llm_pb2.GenerateResponse(tokens=1)  # one object, which changes
        try:
            if self.work:
                await self.work()
            for text in self.texts:
                reply.text = text
                yield reply
                self.sent += 1
            if self.error:
                raise self.error
            reply.finish.reason = STOP
            reply.text = ""
            yield reply
        except (asyncio.CancelledError, GeneratorExit):
            self.stopped.set()
            raise

    async def CountTokens(self, request: llm_pb2.CountTokensRequest, call: Call) -> llm_pb2.CountTokensResponse:
        self.calls.append(call)
        await self._before()
        return llm_pb2.CountTokensResponse(tokens=len(request.messages))

    async def GetModel(self, request: llm_pb2.GetModelRequest, call: Call) -> llm_pb2.GetModelResponse:
        await self._before()
        return llm_pb2.GetModelResponse(context_tokens=4096)

    async def WatchTable(
        self, request: router_pb2.WatchTableRequest, call: Call
    ) -> AsyncIterator[router_pb2.WatchTableResponse]:
        yield router_pb2.WatchTableResponse(version=7)
        await asyncio.Event().wait()

    async def Observe(
        self, requests: AsyncIterator[router_pb2.ObserveRequest], call: Call
    ) -> router_pb2.ObserveResponse:
        async for request in requests:
            self.requests.append(request)
        return router_pb2.ObserveResponse()

    async def _before(self) -> None:
        try:
            if self.work:
                await self.work()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        if self.error:
            raise self.error


@dataclass
class Wired:
    """A service and a channel to it. `servicers` is empty while it starts."""

    service: Scripted
    channel: grpc.aio.Channel
    health: Health
    servicers: dict[str, Any]

    @property
    def llm(self) -> Llm:
        return Llm(self.channel, "small")

    def assemble(self) -> None:
        self.servicers.update({descriptor.full_name: self.service for descriptor in SERVICES})
        set_health(self.health, [descriptor.full_name for descriptor in SERVICES], SERVING)


@asynccontextmanager
async def over_grpc(service: Scripted) -> AsyncIterator[Wired]:
    servicers = dict[str, Any]()
    async with served(SERVICES, servicers) as (channel, health):
        yield Wired(service, channel, health, servicers)


@asynccontextmanager
async def on_a_stream(service: Scripted) -> AsyncIterator[Wired]:
    servicers = dict[str, Any]()
    async with served(SERVICES, servicers) as (plain, health), StandingChannel(plain) as channel:
        channel.keep()
        await until(lambda: channel.takes_calls, 5)
        yield Wired(service, channel, health, servicers)


@asynccontextmanager
async def in_process(service: Scripted) -> AsyncIterator[Wired]:
    servicers, health = dict[str, Any](), Health()
    set_health(health, [descriptor.full_name for descriptor in SERVICES], NOT_SERVING)
    hosted, address = Hosted(SERVICES, servicers, health.Watch), Address()
    with address.held_by(hosted):
        async with InProcessChannel(address) as channel:
            yield Wired(service, channel, health, servicers)
        await hosted.stop(0)


async def read_all(wired: Wired, timeout_s: float = 5.0) -> list[str]:
    completion, texts = wired.llm.generate(llm_pb2.GenerateRequest(), timeout_s, ()), list[str]()
    while completion.finish is None:
        texts.append((await completion.read()).text)
    await completion.ended()
    return texts


async def forever() -> None:
    await asyncio.Event().wait()
