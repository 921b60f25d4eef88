"""The base of the blocking clients: the connection."""

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
_WHY_S = 0.5  # timeout of the call that asks why there is no connection


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
        """Close the connection, and cancel its calls."""
        with self._opening:
            if self._opened:
                self._opened[0].close()
                self._opened = None

    def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request need not wait for a connection. Raises `Unavailable` if no process
        answers."""
        ready = grpc.channel_ready_future(self._open()[0])
        try:
            ready.result(timeout_s)
        except grpc.FutureTimeoutError:
            raise self._connection_error() from None
        finally:
            ready.cancel()

    def _connection_error(self) -> Unavailable:
        """The error that says why no process answers, from the status of a call without `wait_for_ready`."""
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


def run_callbacks(results: Iterable[Any]) -> None:
    """Consume an iterator of results: it calls one callback for each."""
    for _ in results:
        pass


def value_of(result: Any) -> Any:
    """A function's result. Raises `TypeError` for a coroutine, which needs an event loop."""
    if iscoroutine(result):
        result.close()
        raise TypeError(f"{result.__qualname__} is a coroutine function: it needs hedgerow.AsyncClient")
    return result


def reraise(call: Any) -> NoReturn:
    """Cancel `call`, and raise the current exception again. For use inside `except BaseException`."""
    call.cancel()
    raise  # noqa: PLE0704
