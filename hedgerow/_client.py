"""The client for programs without an event loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, Unpack

import grpc

from hedgerow._errors import HedgerowError
from hedgerow._events import Answer, Event, Final
from hedgerow._incoming import Callbacks, Incoming, IncomingBatch
from hedgerow._options import Messages, Options, Request
from hedgerow._outgoing import DEFAULT_TARGET, Caller
from hedgerow._status import from_rpc_error, no_gateway
from hedgerow.channel import CHANNEL_OPTIONS
from hedgerow.gateway.v1 import gateway_pb2_grpc


class Client:
    """A gateway, over one pooled connection that is opened when first used. Safe to share between threads.

    `target` is `host:port`, `unix:path` or `xds:///name`. `api_key` travels as `authorization: Bearer …`.
    `default_budget_ms` holds for requests that name no budget; without it, the gateway's own default does.
    """

    def __init__(
        self, target: str = DEFAULT_TARGET, *, api_key: str | None = None, default_budget_ms: int | None = None
    ):
        self._caller = Caller(target, api_key, default_budget_ms)
        self._channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
        self._stub: Any = gateway_pb2_grpc.GatewayServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and cancel what runs on it."""
        self._channel.close()

    def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request does not wait for it. Raises `Unavailable` when nobody answers."""
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout_s)
        except grpc.FutureTimeoutError:
            raise no_gateway(self._caller.target) from None
        finally:
            ready.cancel()

    def stream(self, messages: Messages, **options: Unpack[Options]) -> AnswerStream:
        """Ask, and iterate over what happens. Raises `InvalidArgument` at once for what can never be sent."""
        out = self._caller.generate(messages, options)
        call = self._stub.Generate(out.request, timeout=out.timeout_s, metadata=out.metadata)
        return AnswerStream(call, Incoming(self._caller.target, out.timeout_s))

    def ask(
        self,
        messages: Messages,
        *,
        on_token: Callable[[str], Any] | None = None,
        on_sentence: Callable[[str], Any] | None = None,
        on_complete: Callable[[Answer], Any] | None = None,
        **options: Unpack[Options],
    ) -> Answer:
        """Ask, and return the whole answer. Callbacks are called in order, in the caller's thread."""
        callbacks, answer = Callbacks(on_token, on_sentence, on_complete), None
        with self.stream(messages, **options) as events:
            for event in events:
                if isinstance(event, Final):
                    answer = event.answer
                for _ in callbacks.notify(event):
                    pass
        assert answer is not None  # a stream without a final event raises
        return answer

    def batch(
        self, requests: Iterable[Messages | Request], **options: Unpack[Options]
    ) -> Iterator[tuple[int, Answer | HedgerowError]]:
        """Ask several at once; yields (position, result) as each is done. An item's own options overrule `options`."""
        out = self._caller.batch(requests, options)
        incoming = IncomingBatch(len(out.request.requests))
        call = self._stub.GenerateBatch(out.request, timeout=out.timeout_s, metadata=out.metadata)
        try:
            yield from map(incoming.result, call)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._caller.target, out.timeout_s) from error
        finally:
            call.cancel()
        incoming.ended()


class AnswerStream:
    """An answer as it arrives: `for event in stream`.

    Leaving `with`, `cancel()` or letting go of the object cancels the call at once, and with it the engine.
    """

    def __init__(self, call: Any, incoming: Incoming):
        self._call, self._incoming = call, incoming
        self._waiting: deque[Event] = deque()  # events that came in one message with an earlier one

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if not self._waiting:
            self._fill()
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def _fill(self) -> None:
        """Read on to the next message that holds an event, or to the end."""
        try:
            for message in self._call:
                self._waiting.extend(self._incoming.events(message))
                if self._waiting:
                    return
        except grpc.RpcError as error:
            self._incoming.failed(error)
        except BaseException:  # Ctrl-C while waiting
            self.cancel()
            raise
        self._incoming.ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cancel()

    def cancel(self) -> None:
        """End the call, if it has not ended. May be called from another thread."""
        self._call.cancel()

    def __del__(self) -> None:
        self._call.cancel()
