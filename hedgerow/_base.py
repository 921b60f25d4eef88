"""What the clients without an event loop share: a connection, and what waiting for one means."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from inspect import iscoroutine
from typing import Any, NoReturn, Self

import grpc

from hedgerow._errors import Unavailable
from hedgerow._peer import Peer
from hedgerow._status import from_rpc_error, no_service_at
from hedgerow.channel import open_blocking_channel

CLOSED: type[Exception] = ValueError  # of a call on a channel that was closed
_WHY_S = 0.5  # for gRPC to say why there is no connection


class ServiceClient:
    """A service, over one pooled connection that is opened when first used. Safe to share between threads."""

    def __init__(self, peer: Peer, make_stub: Callable[[grpc.Channel], Any]):
        self._peer, self._make_stub = peer, make_stub
        self._opening = threading.Lock()
        self._opened: tuple[grpc.Channel, Any] | None = None  # with its stub
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and cancel what runs on it."""
        with self._opening:
            if self._opened:
                self._opened[0].close()
                self._opened = None

    def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request does not wait for it. Raises `Unavailable` when no process answers."""
        ready = grpc.channel_ready_future(self._open()[0])
        try:
            ready.result(timeout_s)
        except grpc.FutureTimeoutError:
            raise self._why_not() from None
        finally:
            ready.cancel()

    def _why_not(self) -> Unavailable:
        """Why no process answers, from the status of a call that does not wait for a connection."""
        call: Any = self._open()[0].unary_unary("/hedgerow/Prewarm")
        try:
            call(b"", timeout=_WHY_S)
        except grpc.RpcError as error:
            problem = from_rpc_error(error, self._peer, _WHY_S)
            if isinstance(problem, Unavailable):
                return problem
        return no_service_at(self._peer)

    def _open(self) -> tuple[grpc.Channel, Any]:
        with self._opening:
            if self._opened is None:
                channel = open_blocking_channel(self._peer.target, self._peer.tls)
                self._opened = channel, self._make_stub(channel)
            return self._opened

    @property
    def _stub(self) -> Any:
        return self._open()[1]

    def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        """One request, one response."""
        try:
            return method(request, timeout=timeout_s, metadata=self._peer.metadata())
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._peer, timeout_s) from error


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def settle(results: Iterable[Any]) -> None:
    """Call the callbacks whose results these are: an iterator calls each when it is asked for the next."""
    for _ in results:
        pass


def value_of(result: Any) -> Any:
    """A function's result. Raises `TypeError` for a coroutine, which needs an event loop."""
    if iscoroutine(result):
        result.close()
        raise TypeError(f"{result.__qualname__} is a coroutine function: it needs hedgerow.AsyncClient")
    return result


def broken_off(call: Any) -> NoReturn:
    """Inside `except BaseException`, while waiting for `call`: Ctrl-C ends it too."""
    call.cancel()
    raise  # noqa: PLE0704
