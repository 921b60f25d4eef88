"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self, Unpack

import grpc

from hedgerow._errors import Cancelled, HedgerowError
from hedgerow._events import Answer, Event, Final
from hedgerow._incoming import Callbacks, Incoming, IncomingBatch
from hedgerow._options import Messages, Options, Request
from hedgerow._outgoing import DEFAULT_TARGET, Caller
from hedgerow._status import from_rpc_error, no_gateway
from hedgerow.channel import open_channel
from hedgerow.gateway.v1 import gateway_pb2_grpc


class AsyncClient:
    """A gateway, over one pooled connection that is opened when first used. Safe to share between tasks of one loop.

    `target` is `host:port`, `unix:path` or `xds:///name`. `api_key` travels as `authorization: Bearer …`.
    `default_budget_ms` holds for requests that name no budget; without it, the gateway's own default does.
    """

    def __init__(
        self, target: str = DEFAULT_TARGET, *, api_key: str | None = None, default_budget_ms: int | None = None
    ):
        self._caller = Caller(target, api_key, default_budget_ms)
        self._channel: grpc.aio.Channel | None = None
        self._stub: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and cancel what runs on it."""
        if self._channel:
            await self._channel.close()
            self._channel = self._stub = None

    async def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request does not wait for it. Raises `Unavailable` when nobody answers."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connection().channel_ready()
        except TimeoutError:
            raise no_gateway(self._caller.target) from None

    def stream(self, messages: Messages, **options: Unpack[Options]) -> AsyncAnswerStream:
        """Ask, and iterate over what happens. Raises `InvalidArgument` at once for what can never be sent."""
        out = self._caller.generate(messages, options)
        call = self._gateway().Generate(out.request, timeout=out.timeout_s, metadata=out.metadata)
        return AsyncAnswerStream(call, Incoming(self._caller.target, out.timeout_s))

    async def ask(
        self,
        messages: Messages,
        *,
        on_token: Callable[[str], Any] | None = None,
        on_sentence: Callable[[str], Any] | None = None,
        on_complete: Callable[[Answer], Any] | None = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Ask, and return the whole answer. Callbacks are functions or coroutine functions, called in order."""
        callbacks, answer = Callbacks(on_token, on_sentence, on_complete), None
        async with self.stream(messages, **options) as events:
            async for event in events:
                if isinstance(event, Final):
                    answer = event.answer
                for result in callbacks.notify(event):
                    if isawaitable(result):
                        await result
        assert answer is not None  # a stream without a final event raises
        return answer

    async def batch(
        self, requests: Iterable[Messages | Request], **options: Unpack[Options]
    ) -> AsyncIterator[tuple[int, Answer | HedgerowError]]:
        """Ask several at once; yields (position, result) as each is done. An item's own options overrule `options`."""
        out = self._caller.batch(requests, options)
        incoming = IncomingBatch(len(out.request.requests))
        call = self._gateway().GenerateBatch(out.request, timeout=out.timeout_s, metadata=out.metadata)
        try:
            async for message in call:
                yield incoming.result(message)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._caller.target, out.timeout_s) from error
        finally:
            call.cancel()
        incoming.ended()

    def _connection(self) -> grpc.aio.Channel:
        if self._channel is None:
            self._channel = open_channel(self._caller.target)
        return self._channel

    def _gateway(self) -> Any:
        if self._stub is None:
            self._stub = gateway_pb2_grpc.GatewayServiceStub(self._connection())  # type: ignore[no-untyped-call]
        return self._stub


class AsyncAnswerStream:
    """An answer as it arrives: `async for event in stream`.

    Leaving `async with`, `cancel()` or letting go of the object cancels the call at once, and with it the engine.
    """

    def __init__(self, call: Any, incoming: Incoming):
        self._call, self._incoming = call, incoming
        self._messages = aiter(call)
        self._waiting: deque[Event] = deque()  # events that came in one message with an earlier one

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
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
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise Cancelled("the call was cancelled") from None  # by `cancel()`: the task itself goes on
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
