"""The streams of the asyncio clients."""

from __future__ import annotations

from collections import deque
from typing import Any, Generic, Self, TypeVar

import grpc

from hedgerow._base_aio import reraise
from hedgerow._errors import Cancelled
from hedgerow._incoming import Incoming

E = TypeVar("E")


class AsyncEventStream(Generic[E]):
    """Events as they arrive: `async for event in stream`.

    Leaving `async with`, `cancel()` or letting go of the object cancels the call at once, and with it the engine. After
    `cancel()` the iteration ends, without an error.
    """

    def __init__(self, call: Any, incoming: Incoming[E]):
        self._call, self._incoming = call, incoming
        self._messages = aiter(call)
        self._cancelled = False
        self._waiting: deque[E] = deque()  # events that came in one message with an earlier one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        if not self._waiting and not self._cancelled:
            try:
                await self._fill()
            except Cancelled:
                if not self._cancelled:
                    raise
        if self._cancelled or not self._waiting:
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
        except BaseException:
            reraise(self._call)
        if self._call.cancelled():  # when the wait for an earlier event was interrupted
            raise Cancelled("the call was cancelled")
        self._incoming.ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call, if it has not ended, and the iteration. May be called from another task."""
        self._cancelled = True
        self._call.cancel()

    def __del__(self) -> None:
        if call := getattr(self, "_call", None):  # absent if `__init__` failed
            call.cancel()
