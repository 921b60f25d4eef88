"""Calls of the asyncio clients that send while they receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Self, TypeVar

from hedgerow._errors import Cancelled
from hedgerow._incoming import Incoming
from hedgerow._peer import Metadata
from hedgerow._streams_aio import AsyncEventStream
from hedgerow.channel import done_sending, send

E = TypeVar("E")


class Sender:
    """The sending half of a call. It does not know the receiving half, so that letting go of that ends both."""

    def __init__(self, call: Any):
        self._call = call
        self._turn = asyncio.Lock()  # gRPC takes one message at a time
        self._over = False
        self.problem: Exception | None = None  # what the caller's iterator raised

    async def run(self, requests: AsyncGenerator[Any, None]) -> None:
        """Send all of them, then close this side. An error in it ends the call; the receiving half raises it."""
        try:
            async with aclosing(requests):
                async for request in requests:
                    if not await self.send(request):
                        return
            await self._close()
        except Exception as problem:
            self.problem = problem
            self._call.cancel()

    async def send(self, request: Any) -> bool:
        """Send one; False when this side is closed or the call is over, and the receiver gets the reason."""
        async with self._turn:
            self._over = self._over or not await send(self._call, request)
            return not self._over

    async def _close(self) -> None:
        async with self._turn:
            if not self._over:
                self._over = True
                await done_sending(self._call)


class AsyncDuplexStream(AsyncEventStream[E]):
    """Events of a call that sends at the same time."""

    def __init__(self, call: Any, requests: AsyncGenerator[Any, None], incoming: Incoming[E]):
        super().__init__(call, incoming)
        self._sender = Sender(call)
        self._sending = asyncio.create_task(self._sender.run(requests))

    @classmethod
    def begin(
        cls,
        method: Any,
        requests: AsyncGenerator[Any, None],
        incoming: Incoming[E],
        metadata: Metadata,
        timeout_s: float | None = None,
    ) -> Self:
        """Make the call."""
        return cls(method(timeout=timeout_s, metadata=metadata), requests, incoming)

    async def _send(self, request: Any) -> bool:
        """Send one between the others, at once; False when nothing can be sent any more."""
        return await self._sender.send(request)

    async def _fill(self) -> None:
        try:
            await super()._fill()
        except Cancelled:
            if self._sender.problem is None:
                raise
            raise self._sender.problem from None
        finally:
            if not self._waiting:  # it is over
                self._sending.cancel()

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()
        await asyncio.wait([self._sending])

    def cancel(self) -> None:
        """End the call, if it has not ended."""
        super().cancel()
        self._sending.cancel()

    def __del__(self) -> None:
        self.cancel()
