"""What the clients without an event loop share: a connection, and streams of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

import grpc

from hedgerow._incoming import Incoming
from hedgerow._peer import Peer
from hedgerow._status import from_rpc_error, nobody_at
from hedgerow.channel import open_blocking_channel

E = TypeVar("E")


class ServiceClient:
    """A service, over one pooled connection that is opened when first used. Safe to share between threads."""

    def __init__(self, peer: Peer, make_stub: Callable[[grpc.Channel], Any]):
        self._peer = peer
        self._channel = open_blocking_channel(peer.target, peer.tls)
        self._stub: Any = make_stub(self._channel)

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
            raise nobody_at(self._peer) from None
        finally:
            ready.cancel()

    def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        """One request, one response."""
        try:
            return method(request, timeout=timeout_s, metadata=self._peer.metadata())
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._peer, timeout_s) from error


class EventStream(Generic[E]):
    """Events as they arrive: `for event in stream`.

    Leaving `with`, `cancel()` or letting go of the object cancels the call at once, and with it the engine.
    """

    def __init__(self, call: Any, incoming: Incoming[E]):
        self._call, self._incoming = call, incoming
        self._waiting: deque[E] = deque()  # events that came in one message with an earlier one

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E:
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
