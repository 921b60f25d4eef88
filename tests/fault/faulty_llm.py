"""A simulated LLMService that breaks on command, and counts what reaches it.

It runs in the test's own process and event loop, behind the services' real error boundary and on a real port: a test
switches `behaviour` and reads the counts without a protocol for it. Where a process must be killed, there is
`bench.simulated_llm`. Run as a process itself (`HEDGEROW_FAULTY_LLM_SECRET=… python -m tests.fault.faulty_llm`), it
raises an exception with a secret in its text, and its log can be read.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2 as pb
from services.runtime.errors import Exhausted, InvalidInput, NotSupported, Unavailable
from services.runtime.process import serve
from services.runtime.process.config import ServiceSettings
from services.runtime.process.server import server_options
from services.runtime.rpc import boundary
from services.runtime.rpc.boundary import Call

SERVICE = pb.DESCRIPTOR.services_by_name["LLMService"]
WORD = "word "


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How calls go from now on. The default is healthy and fast."""

    tokens: int = 4  # where the request does not say
    text: str = WORD  # of each token
    first_ms: float = 0
    jitter_ms: float = 0  # the first token comes up to so much sooner or later
    each_ms: float = 0
    fail_share: float = 0  # of calls that end UNAVAILABLE before their first token
    stall_after: int | None = None  # tokens, then silence for ever
    break_after: int | None = None  # tokens, then UNAVAILABLE
    throttle_s: float = 0  # above 0: RESOURCE_EXHAUSTED, come back after that long
    secret: str = ""  # not empty: raises an exception with it in its text
    refuses: str = ""  # not empty: requests with it in their question are INVALID_ARGUMENT
    breaks_over: str = ""  # likewise, and they end in an exception
    repeats: str = ""  # not empty: `<repeats> 10 900 4` is answered with 900 newlines (U+000A), 4 in each message


HEALTHY = Behaviour()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that arrived: when, in monotonic seconds, and what it asked."""

    at: float
    question: str


@dataclass
class FaultyLlm:
    """The servicer. `running` and `peak` count calls at once; `cancelled` holds when callers left, in seconds."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    behaviour: Behaviour = HEALTHY
    address: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    cancelled: list[float] = field(default_factory=list)
    running: int = 0
    peak: int = 0

    def reset(self) -> None:
        """Healthy, with all counts at zero but `running`."""
        self.behaviour, self.peak = HEALTHY, self.running
        self.attempts.clear()
        self.cancelled.clear()

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        self.attempts.append(Attempt(time.monotonic(), request.messages[-1].content))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            async for message in self._answer(request, self.behaviour):
                yield message
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.append(time.monotonic())
            raise
        finally:
            self.running -= 1

    async def _answer(self, request: pb.GenerateRequest, how: Behaviour) -> AsyncIterator[pb.GenerateResponse]:
        await asyncio.sleep((how.first_ms + self.rng.uniform(-how.jitter_ms, how.jitter_ms)) / 1000)
        self._refuse(request, how)
        asked = request.messages[-1].content
        if how.repeats and asked.startswith(how.repeats):
            sign, times, size = map(int, asked.split()[1:4])
            for at in range(0, times, size):
                yield _message(chr(sign) * min(size, times - at), 0)
            yield _message("", 1)
            return
        tokens = request.sampling.max_tokens or how.tokens
        for number in range(tokens):
            if number and how.each_ms:
                await asyncio.sleep(how.each_ms / 1000)
            if number == how.break_after:
                raise Unavailable("simulated: broken in the middle")
            if number == how.stall_after:
                await asyncio.Event().wait()
            yield _message(how.text, tokens if number == tokens - 1 else 0)

    def _refuse(self, request: pb.GenerateRequest, how: Behaviour) -> None:
        if request.prefix:
            raise NotSupported("prefix: this engine cannot go on from the beginning of an answer")
        asked = request.messages[-1].content
        if how.refuses and how.refuses in asked:
            raise InvalidInput("response_format.regex", "what this engine can follow", "another")
        if how.breaks_over and how.breaks_over in asked:
            raise RuntimeError("simulated: broke over a request")
        if how.secret:
            raise RuntimeError(f"connection string: {how.secret}")
        if how.throttle_s:
            raise Exhausted("simulated: throttled", retry_delay_s=how.throttle_s)
        if how.fail_share and self.rng.random() < how.fail_share:
            raise Unavailable("simulated: broken")

    async def CountTokens(self, request: pb.CountTokensRequest, call: Call) -> pb.CountTokensResponse:
        return pb.CountTokensResponse(tokens=sum(len(message.content.split()) for message in request.messages))

    async def GetModel(self, request: pb.GetModelRequest, call: Call) -> pb.GetModelResponse:
        return pb.GetModelResponse(name="faulty", engine="simulated", running=self.running)


def _message(text: str, tokens: int) -> pb.GenerateResponse:
    """`tokens` is the length of the whole answer for its last message, else 0."""
    usage = chat_pb2.Usage(prompt_tokens=8, completion_tokens=tokens)
    finish = pb.Finish(reason=chat_pb2.FINISH_REASON_STOP, usage=usage) if tokens else None
    return pb.GenerateResponse(text=text, tokens=1, finish=finish)


@asynccontextmanager
async def faulty_llm() -> AsyncIterator[FaultyLlm]:
    """One that serves in this process; its `address` says where."""
    async with serving(SERVICE, llm := FaultyLlm()) as address:
        llm.address = address
        yield llm


@asynccontextmanager
async def serving(
    descriptor: ServiceDescriptor, servicer: boundary.Servicer, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[str]:
    """Any servicer on a free port of this process, behind the real boundary, with `credentials` over TLS; its
    address."""
    server = grpc.aio.server(options=server_options(ServiceSettings()))
    server.add_generic_rpc_handlers((boundary.handlers(descriptor, {descriptor.full_name: servicer}),))
    at = "127.0.0.1:0"
    port = server.add_secure_port(at, credentials) if credentials else server.add_insecure_port(at)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


class FaultyLlmSettings(ServiceSettings):
    """Settings of the process."""

    model_config = SettingsConfigDict(env_prefix="HEDGEROW_FAULTY_LLM_")

    secret: str = Field("", description="Raised in the text of an exception.")


@asynccontextmanager
async def assemble(settings: FaultyLlmSettings) -> AsyncIterator[Mapping[ServiceDescriptor, FaultyLlm]]:
    yield {SERVICE: FaultyLlm(behaviour=Behaviour(secret=settings.secret))}


if __name__ == "__main__":
    serve.main("faulty_llm", FaultyLlmSettings, [SERVICE], assemble)
