"""The base of the asyncio clients: the connection."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from inspect import isawaitable
from typing import Any, NoReturn, Self

import grpc

from hedgerow._errors import Cancelled, Unavailable
from hedgerow._peer import Peer
from hedgerow._status import from_rpc_error, no_service_at
from hedgerow.channel import answer, open_channel

CLOSED: type[Exception] = grpc.aio.UsageError  # of a call on a channel that was closed
_WHY_S = 0.5  # for gRPC to say why there is no connection


class AsyncServiceClient:
    """A service, over one pooled connection that is opened when first used.

    Safe to share between tasks of one loop. After the end of a loop, the next one gets a connection of its own.
    """

    def __init__(self, peer: Peer, make_stub: Callable[[grpc.aio.Channel], Any]):
        self._peer, self._make_stub = peer, make_stub
        self._opened: tuple[grpc.aio.Channel, Any] | None = None  # with its stub
        self._loop: asyncio.AbstractEventLoop | None = None  # of the channel

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and cancel its calls."""
        if self._opened:
            await self._opened[0].close()
            self._opened = None

    async def prewarm(self, timeout_s: float = 5.0) -> None:
        """Connect now, so that the first request need not wait for a connection. Raises `Unavailable` if no process
        answers."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._open()[0].channel_ready()
        except TimeoutError:
            raise await self._connection_error() from None

    async def _connection_error(self) -> Unavailable:
        """The error that says why no process answers, from the status of a call without `wait_for_ready`."""
        call: Any = self._open()[0].unary_unary("/hedgerow/Prewarm")
        try:
            await call(b"", timeout=_WHY_S)
        except grpc.RpcError as error:
            problem = from_rpc_error(error, self._peer, _WHY_S)
            if isinstance(problem, Unavailable):
                return problem
        return no_service_at(self._peer)

    def _open(self) -> tuple[grpc.aio.Channel, Any]:
        if self._opened is None or (self._loop and self._loop.is_closed()):
            channel = open_channel(self._peer.target, tls=self._peer.tls)
            self._opened, self._loop = (channel, self._make_stub(channel)), asyncio.get_running_loop()
        return self._opened

    @property
    def _stub(self) -> Any:
        return self._open()[1]

    async def _call(self, method: Any, request: Any, timeout_s: float) -> Any:
        """One request, one response."""
        try:
            return await answer(method(request, timeout=timeout_s, metadata=self._peer.metadata()))
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._peer, timeout_s) from error
        except asyncio.CancelledError:
            raise_cancelled()


async def pause(seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)


async def run_callbacks(results: Iterable[Any]) -> None:
    """Consume an iterator of results, which calls one callback for each, and await the awaitable ones."""
    for result in results:
        if isawaitable(result):
            await result


async def value_of(result: Any) -> Any:
    """A function's result, awaited if it is a coroutine function."""
    return await result if isawaitable(result) else result


def reraise(call: Any) -> NoReturn:
    """Raise the current exception again, or `Cancelled` if only `call` was cancelled. For use inside `except
    BaseException`."""
    if isinstance(sys.exception(), asyncio.CancelledError):
        raise_cancelled()
    raise  # noqa: PLE0704


def raise_cancelled() -> NoReturn:
    """Raise `Cancelled` if only the call was cancelled, and not the task: gRPC raises `CancelledError` for both. For
    use inside `except CancelledError`."""
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise  # noqa: PLE0704
    raise Cancelled("the call was cancelled") from None
