"""What the asyncio clients share: a connection, and streams of events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

import grpc

from hedgerow._errors import Cancelled
from hedgerow._incoming import Incoming
from hedgerow._peer import Peer
from hedgerow._status import from_rpc_error, nobody_at
from hedgerow.channel import open_channel

E = TypeVar("E")


class AsyncServiceClient:
    """A service, over one pooled connection that is opened when first used.

    Safe to share between tasks of one loop.
    """

    def __init__(self, peer: Peer, make_stub: Callable[[grpc.aio.Channel], Any]):
        self._peer, self._make_stub = peer, make_stub
        self._channel: grpc.aio.Channel | None = None
        self._made_stub: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and cancel what runs on it."""
        if self._channel:
            await self._channel.close()
            self._channel = self._made_stub = None

    async def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request does not wait for it. Raises `Unavailable` when nobody answers."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection().channel_ready()
        except TimeoutError:
            raise nobody_at(self._peer) from None

    def _connection(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = open_channel(self._peer.target, tls=self._peer.tls)
        return self._channel

    @property
    def _stub(self) -> Any:
        if self._made_stub is None:
            self._made_stub = self._make_stub(self._connection())
        return self._made_stub

    async def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        """One request, one response."""
        try:
            return await method(request, timeout=timeout_s, metadata=self._peer.metadata())
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._peer, timeout_s) from error
        except asyncio.CancelledError:
            raise_cancelled()


class AsyncEventStream(Generic[E]):
    """Events as they arrive: `async for event in stream`.

    Leaving `async with`, `cancel()` or letting go of the object cancels the call at once, and with it the engine.
    """

    def __init__(self, call: Any, incoming: Incoming[E]):
        self._call, self._incoming = call, incoming
        self._messages = aiter(call)
        self._waiting: deque[E] = deque()  # events that came in one message with an earlier one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        if not self._waiting:
            await self._fill()
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def _fill(self) -> None:
        """Read on to the next message that holds an event, or to the end."""
        try:
            async for message in self._messages:
                self._waiting.extend(self._incoming.events(message))
                if self._waiting:
                    return
        except grpc.RpcError as error:
            self._incoming.failed(error)
        except asyncio.CancelledError:
            raise_cancelled()
        self._incoming.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: object, trace: TracebackType | None) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call, if it has not ended."""
        self._call.cancel()

    def __del__(self) -> None:
        self._call.cancel()


def raise_cancelled() -> NoReturn:
    """Inside `except CancelledError`: gRPC raises that also for a cancelled call, while the task itself goes on."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise  # noqa: PLE0704
    raise Cancelled("the call was cancelled") from None
