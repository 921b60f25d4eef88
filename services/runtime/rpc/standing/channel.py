"""A channel whose calls to our services travel as frames on one standing stream of its connection.

It is a `grpc.aio.Channel` around another, so a stub does not know. A call of gRPC's own costs its caller 0.35 to 0.54
ms of CPU, and each of its messages 0.1 ms. Frames that are ready together, of any number of calls, are one message.

The stream opens in the background, at the first call and again on each connection. Until the server has greeted
(HELLO), and while there is no stream, calls are the other channel's own: a server that does not offer it, or a proxy in
between, costs no call. So are calls with a stream of requests, those to other services than ours (health, reflection),
large requests, and those beyond the number that the server allows on one stream.

If the stream breaks, each call on it ends with UNAVAILABLE, as those of a broken connection do. A connection that takes
no more calls (HTTP/2's GOAWAY, of a server that stops or a proxy that limits its age) gets none by its stream either.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import grpc
from prometheus_client import Gauge

from hedgerow.channel import RESET, send
from services.runtime.rpc.local_call import Metadata
from services.runtime.rpc.standing.calling import OpenCalls
from services.runtime.rpc.standing.frames import METHOD, SERVICE, BadFrame

_OURS = "/hedgerow."  # the paths of our services
_AGAIN_S, _LATER_S = 0.25, 30.0  # to the next stream of a connection where one has ended; the latter if refused
_READY = grpc.ChannelConnectivity.READY
_BROKEN = "the stream has ended"
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)  # the ends of a stream that may be opened again
_UP = Gauge("hedgerow_standing_streams", "Streams that carry calls to a service; others are gRPC calls.", ["service"])
_channels: dict[str, set[StandingChannel]] = {}  # by service
_log = logging.getLogger(__name__)


class StandingChannel(grpc.aio.Channel):
    """A channel to `service` around `channel`, which is closed with it and must lead to one server: a stream stays
    where it is."""

    def __init__(self, channel: grpc.aio.Channel, service: str = ""):
        self._channel, self._service, self._context = channel, service, contextvars.copy_context()
        self._running: dict[asyncio.Task[None], OpenCalls] = {}  # also streams that take no more calls
        self._keeping: asyncio.Task[None] | None = None
        self._closed = False
        self._calls: OpenCalls | None = None  # of the stream that takes calls
        _counted(service).add(self)

    @property
    def is_up(self) -> bool:
        """Whether the server has greeted on a stream that takes calls, be it full."""
        return self._calls is not None and self._calls.greeted

    @property
    def takes_calls(self) -> bool:
        """Whether a call would go on the stream now."""
        return self._calls is not None and self._calls.takes_calls

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any, **__: Any
    ) -> Any:
        return self._method(self._channel.unary_unary, method, request_serializer, response_deserializer)

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, *_: Any, **__: Any
    ) -> Any:
        return self._method(self._channel.unary_stream, method, request_serializer, response_deserializer)

    def _method(self, make: Callable[..., Any], path: str, serialize: Any, parse: Any) -> Any:
        if path.startswith(_OURS):
            return _Method(self, path, make(path, None, parse), serialize, parse)
        return make(path, serialize, parse)

    def stream_unary(self, *args: Any, **named: Any) -> Any:
        return self._channel.stream_unary(*args, **named)

    def stream_stream(self, *args: Any, **named: Any) -> Any:
        return self._channel.stream_stream(*args, **named)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def keep(self) -> OpenCalls | None:
        """Have a stream from now on. Returns its calls, as far as it is there."""
        if self._keeping is None and not self._closed:
            # In the context of the channel, not in that of its first call.
            self._keeping = asyncio.get_running_loop().create_task(self._keep(), context=self._context)
        return self._calls

    async def _keep(self) -> None:
        """Have streams on each connection. Never returns."""
        while True:
            while (state := self._channel.get_state()) is not _READY:
                await self._channel.wait_for_state_change(state)
            lost = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._use(lost))
                await self._channel.wait_for_state_change(_READY)
                lost.set()
                if self._calls:
                    self._calls.leave()

    async def _use(self, lost: asyncio.Event) -> None:
        """Have streams, one after the other, on a connection until it is `lost`."""
        while not lost.is_set():
            self._calls = calls = OpenCalls()
            stream: Any = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")()
            running = asyncio.create_task(_run(stream, calls, self._service))
            self._running[running] = calls
            running.add_done_callback(self._running.pop)
            await calls.closed.wait()
            self._calls = None
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATER_S if calls.refused else _AGAIN_S):
                    await lost.wait()

    async def close(self, grace: float | None = None) -> None:
        """Close it; calls in flight have `grace` seconds to end."""
        self._closed = True
        _counted(self._service).discard(self)
        if self._keeping:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self._calls, running = None, dict(self._running)
        for calls in running.values():
            calls.leave()
        await self._channel.close(grace)
        if running:
            await asyncio.wait(running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


def _counted(service: str) -> set[StandingChannel]:
    """The open channels to a service, whose streams are counted: by a thread, from a copy."""
    if service not in _channels:
        channels = _channels[service] = set()
        _UP.labels(service).set_function(lambda: sum(channel.is_up for channel in tuple(channels)))
    return _channels[service]


class _Method:
    """An RPC of the channel. `plain` is that of the channel around which it is, with requests in bytes."""

    __slots__ = ("_channel", "_parse", "_path", "_plain", "_serialize")

    def __init__(self, channel: StandingChannel, path: str, plain: Any, serialize: Any, parse: Any):
        self._channel, self._path, self._plain = channel, path, plain
        self._serialize, self._parse = serialize or bytes, parse or bytes

    def __call__(
        self, request: Any, timeout: float | None = None, metadata: Metadata | None = None, **named: Any
    ) -> Any:
        raw = self._serialize(request)
        calls = self._channel.keep()
        if calls and not named and (call := calls.open(self._path, raw, timeout, metadata or (), self._parse)):
            return call
        return self._plain(raw, timeout=timeout, metadata=metadata, **named)


async def _run(stream: Any, calls: OpenCalls, service: str) -> None:
    """Serve a stream to its end."""
    details, refused, writing = _BROKEN, False, asyncio.create_task(_write(stream, calls))
    try:
        while (message := await stream.read()) is not grpc.aio.EOF:
            calls.receive(message)
    except grpc.aio.AioRpcError as error:
        details = error.details() or details
        refused = error.code() not in _LOST and RESET not in details
        if refused and error.code() is not grpc.StatusCode.UNIMPLEMENTED:  # that of an older release
            _log.error("the standing stream to %s has ended: %s: %s", service, error.code().name, details)
    except BadFrame as error:
        details, refused = str(error), True
        _log.error("the standing stream to %s has ended: %s", service, details)
    except grpc.aio.BaseError:  # the connection broke as something was sent
        pass
    finally:
        calls.fail(details, refused=refused)
        writing.cancel()
        stream.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _write(stream: Any, calls: OpenCalls) -> None:
    """Send what there is until the stream is over."""
    while True:
        await calls.filled.wait()
        calls.filled.clear()
        while message := calls.outgoing.message():
            if not await send(stream, message):
                return  # a read raises the reason
