"""What the scripted servers share: they play back steps instead of computing, and keep what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from services.runtime.process.config import ServiceSettings
from services.runtime.process.server import server_options


@dataclass
class Refusal:
    """A status with details, as the services' error boundary sends it; of our own services with a `domain`."""

    code: str
    message: str
    reason: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    retry_delay_ms: int = 0
    domain: str = ""

    async def send(self, context: Any) -> None:
        number = code_pb2.Code.Value(self.code)
        status = status_pb2.Status(code=number, message=self.message)
        details: list[Any] = [
            error_details_pb2.ErrorInfo(reason=self.reason, domain=self.domain, metadata=self.metadata)
        ]
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
    """The server says nothing more until `release` is set."""

    release: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Heard:
    """The server says nothing more until so many requests have come in this call; without a number, all there are."""

    requests: int | None = None


class Scripted:
    """Plays `script` for every call, and keeps what it was asked."""

    def __init__(self) -> None:
        self.script: Sequence[Any] = []
        self.requests: list[Any] = []
        self.metadata: dict[str, str] = {}
        self.time_remaining_s: float | None = None
        self.cancelled = asyncio.Event()
        self.target = ""
        self._heard = 0  # in this call
        self._closed = False  # the client's side of this call
        self._news = asyncio.Condition()

    async def answer(self, request: Any, context: Any) -> AsyncGenerator[Any, None]:
        """One request, a stream of responses."""
        self._meet(context)
        self.requests.append(request)
        with self._noting_cancellation():
            async for step in self._play(context):
                yield step

    async def reply(self, request: Any, context: Any) -> Any:
        """One request, one response."""
        async with aclosing(self.answer(request, context)) as steps:
            return await anext(steps)

    async def talk(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Both sides stream."""
        self._meet(context)
        listening = asyncio.create_task(self._listen(requests))
        try:
            with self._noting_cancellation():
                async for step in self._play(context):
                    yield step
        finally:
            listening.cancel()

    def _meet(self, context: Any) -> None:
        self._heard, self._closed = 0, False
        self.metadata = dict(context.invocation_metadata())
        self.time_remaining_s = context.time_remaining()

    @contextmanager
    def _noting_cancellation(self) -> Iterator[None]:
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):  # while it waits; while a message is on its way
            self.cancelled.set()
            raise

    async def _listen(self, requests: AsyncIterator[Any]) -> None:
        async for request in requests:
            self.requests.append(request)
            self._heard += 1
            await self._tell()
        self._closed = True
        await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _play(self, context: Any) -> AsyncIterator[Any]:
        for step in self.script:
            if isinstance(step, Refusal):
                await step.send(context)
            elif isinstance(step, Hold):
                await step.release.wait()
            elif isinstance(step, Heard):
                await self._wait_for(step.requests)
            else:
                yield step

    async def _wait_for(self, requests: int | None) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._closed if requests is None else self._heard >= requests)


S = TypeVar("S", bound=Scripted)


@asynccontextmanager
async def serving(scripted: S, register: Callable[[Any, Any], None], address: str = "127.0.0.1:0") -> AsyncIterator[S]:
    """Serve it there, by default on a free loopback port; its `target` says which."""
    server = grpc.aio.server(options=server_options(ServiceSettings()))
    register(scripted, server)
    scripted.target = f"127.0.0.1:{server.add_insecure_port(address)}"
    await server.start()
    try:
        yield scripted
    finally:
        await server.stop(0)
