"""A call that is not one of gRPC's, for its caller and its servicer: within this process, or as frames of a stream."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, Self

import grpc
from google.protobuf.message import Message

from services.runtime.deadline import Deadline

_AHEAD = 64  # replies that may wait for their reader; gRPC holds back by bytes
Metadata = Sequence[tuple[str, str | bytes]]
Serve = Callable[[Any, "Context"], Awaitable[Any]]  # (a request or requests, the call's context)


class Served(Protocol):
    """A call, from its servicer's side."""

    context: Context

    async def take(self, message: Any) -> None:
        """A reply, for which there is room."""

    def returned(self, reply: Any) -> None:
        """The servicer has come to its end; `reply` is that of a call with one reply."""

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End it with a status that the servicer did not give, and stop the servicer."""


async def run(call: Served, serve: Serve, given: Any) -> None:
    """The task of a call. Only a cancelled one ends without the servicer's own status."""
    try:
        call.returned(await serve(given, call.context))
    except asyncio.CancelledError:
        call.end(grpc.StatusCode.CANCELLED, "the service gave the call up")
        raise
    except grpc.aio.AbortError:
        pass  # `abort` has ended the call
    except Exception:  # not of the boundary, which lets none through: of the health service
        call.end(grpc.StatusCode.INTERNAL, "")


class Context:
    """The part of a `grpc.aio.ServicerContext` that the boundary uses."""

    def __init__(self, call: Served, metadata: Metadata, deadline: Deadline):
        self._call, self._metadata, self._deadline = call, metadata, deadline
        self.code, self.details = grpc.StatusCode.OK, ""
        self.trailing: Metadata = ()

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def time_remaining(self) -> float | None:
        left = self._deadline.remaining()
        return None if left == float("inf") else left

    def peer(self) -> str:
        return "in-process"

    def set_code(self, code: grpc.StatusCode) -> None:
        self.code = code

    def set_details(self, details: str) -> None:
        self.details = details

    def set_trailing_metadata(self, trailing: Metadata) -> None:
        self.trailing = trailing

    async def write(self, message: Any) -> None:
        await self._call.take(message)


class CallersSide(ABC):
    """A call, from its caller's side: the part of `grpc.aio`'s calls that the gateway's stubs use."""

    def __init__(self, timeout_s: float | None):
        self._replies: deque[Any] = deque()
        self._changed = asyncio.Event()
        self._status: tuple[grpc.StatusCode, str, Metadata] | None = None
        self._cancelled = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(timeout_s, 0), self._expire) if timeout_s is not None else None

    @abstractmethod
    def _stop(self) -> None:
        """The call has ended before its servicer did."""

    @abstractmethod
    def _read(self, reply: Any) -> Any:
        """A reply leaves for its reader, in the form that the caller gets."""

    def receive(self, reply: Any) -> None:
        self._replies.append(reply)
        self._changed.set()

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """End it with a status that the servicer did not give, and stop the servicer."""
        self.finish(code, details, ())
        self._stop()

    def finish(self, code: grpc.StatusCode, details: str, trailing: Metadata) -> None:
        """End it with the servicer's status. No effect once it has ended."""
        if self._status is None:
            self._status = code, details, trailing
            if self._timer:
                self._timer.cancel()
            self._changed.set()

    def _expire(self) -> None:
        self.end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def done(self) -> bool:
        return self._status is not None

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> bool:
        """Whether it was still under way."""
        if self._status is not None:
            return False
        self._cancelled = True
        self._replies.clear()
        self.end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    async def code(self) -> grpc.StatusCode:
        return (await self._ended())[0]

    async def details(self) -> str:
        return (await self._ended())[1]

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata(*(await self._ended())[2])

    async def _ended(self) -> tuple[grpc.StatusCode, str, Metadata]:
        while self._status is None:
            self._changed.clear()
            await self._changed.wait()
        return self._status

    async def read(self) -> Any:
        """The next reply, or `grpc.aio.EOF`. Raises as gRPC does: `AioRpcError`, and `CancelledError` for a call that
        this side has cancelled. A reader that is cancelled cancels the call."""
        while not self._replies:
            if self._status is not None:
                return self._at_end()
            self._changed.clear()
            try:
                await self._changed.wait()
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self._read(self._replies.popleft())

    def _at_end(self) -> Any:
        assert self._status is not None
        code, details, trailing = self._status
        if self._cancelled:
            raise asyncio.CancelledError
        if code is not grpc.StatusCode.OK:
            raise failed(code, details, trailing)
        return grpc.aio.EOF

    async def _one(self) -> Any:
        reply = await self.read()
        if reply is grpc.aio.EOF:
            raise failed(grpc.StatusCode.INTERNAL, "ended without a reply")
        return reply

    def __await__(self) -> Generator[Any, None, Any]:
        return self._one().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        reply = await self.read()
        if reply is grpc.aio.EOF:
            raise StopAsyncIteration
        return reply


def failed(code: grpc.StatusCode, details: str, trailing: Metadata = ()) -> grpc.aio.AioRpcError:
    """The error of a call that has ended with a status other than OK."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


class LocalCall(CallersSide):
    """A call within this process, for both sides."""

    def __init__(self, timeout_s: float | None, metadata: Metadata):
        super().__init__(timeout_s)
        deadline = Deadline.never() if timeout_s is None else Deadline.after(timeout_s)
        self.context = Context(self, tuple(metadata), deadline)
        self.task: asyncio.Task[None] | None = None  # the servicer's
        self._room = asyncio.Event()

    async def take(self, message: Any) -> None:
        """A reply, for which there is room."""
        while len(self._replies) >= _AHEAD:
            self._room.clear()
            await self._room.wait()
        self.receive(message)

    def returned(self, reply: Any) -> None:
        """The servicer has come to its end; `reply` is that of a call with one reply."""
        context = self.context
        if context.code is grpc.StatusCode.OK and isinstance(reply, Message):
            self._replies.append(reply)
        self.finish(context.code, context.details, context.trailing)

    def _stop(self) -> None:
        if self.task and self.task is not asyncio.current_task():
            self.task.cancel()

    def _read(self, reply: Any) -> Any:
        self._room.set()
        return reply
