"""A channel to services of this process: a call is a task here, and nothing crosses a socket.

The channel is a `grpc.aio.Channel`, so a stub does not know which kind it has. Behind it is the same boundary as behind
gRPC's server (`boundary.py`): spans, metrics, admission and error mapping are the same code. What gRPC's core would do
is done here: a deadline ends the call with DEADLINE_EXCEEDED and cancels the servicer; a caller that cancels, or whose
task is cancelled, cancels the servicer; a reader that is slow holds the servicer back. Each message is copied once,
because each side may change its own.

There is no largest message here: the gateway's validation bounds requests, and the engines bound answers.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from services.runtime.rpc import boundary
from services.runtime.rpc.local_call import Context, LocalCall, Metadata, Serve, run

_HEALTH = "/grpc.health.v1.Health/Watch"
_GONE = "the service of this process has stopped"
_CLEAN_UP_S = 1.0  # that a channel waits for servicers whose calls it has ended


class Address:
    """The address of services in this process. It has none before they start, and during a restart."""

    def __init__(self) -> None:
        self.hosted: Hosted | None = None
        self._changed = asyncio.Event()

    @contextmanager
    def held_by(self, hosted: Hosted) -> Iterator[None]:
        """The services are here inside the block, until they stop."""
        self._become(hosted)
        hosted.stopping = lambda: self._become(None)
        try:
            yield
        finally:
            self._become(None)

    async def change(self) -> None:
        """Return after services have started or stopped."""
        await self._changed.wait()

    def _become(self, hosted: Hosted | None) -> None:
        if hosted is not self.hosted:
            self.hosted = hosted
            self._changed.set()
            self._changed = asyncio.Event()


class Hosted:
    """The services behind one address of this process. It stops as gRPC's server does.

    `servicers` is asked at each call, as `boundary.handlers` does. `watch_health` serves `grpc.health.v1.Health/Watch`.
    Tasks of calls run in the context in which this object was made.
    """

    def __init__(
        self, descriptors: Sequence[ServiceDescriptor], servicers: Mapping[str, boundary.Servicer], watch_health: Serve
    ):
        self._methods = boundary.methods_by_path(descriptors, servicers, copied=True)
        self._watch_health, self._context = watch_health, contextvars.copy_context()
        self._calls: set[LocalCall] = set()
        self.stopping: Callable[[], None] = lambda: None  # called once no more calls are taken

    def begin(self, call: LocalCall, path: str, kind: str, request: Any) -> None:
        """Have the method at `path` serve a call, in a task. `kind` is its shape, as `boundary.Method` names it."""
        self._calls.add(call)
        given = boundary.copy_of(request) if isinstance(request, Message) else request
        work = run(call, self._method(path, kind), given)
        call.task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        call.task.add_done_callback(lambda _: self._calls.discard(call))

    def leave(self) -> None:
        """Calls are still taken."""

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, and end the others after `grace_s`."""
        self.stopping()
        tasks = [call.task for call in self._calls if call.task]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=grace_s)
        for call in tuple(self._calls):
            call.end(grpc.StatusCode.UNAVAILABLE, _GONE)
        await asyncio.wait(tasks)

    def _method(self, path: str, kind: str) -> Serve:
        if path == _HEALTH:
            return self._watch_health
        if method := self._methods.get(path):
            serve: Serve = getattr(method, kind)
            return serve
        return _unimplemented


async def _unimplemented(_: Any, context: Context) -> None:
    context.set_code(grpc.StatusCode.UNIMPLEMENTED)
    context.set_details("no such method")


class InProcessChannel(grpc.aio.Channel):
    """A channel to an address of this process. Serializers are not used."""

    def __init__(self, address: Address):
        self._address, self._open = address, set[LocalCall]()
        self._closed = False

    def unary_unary(self, method: str, *_: Any, **__: Any) -> Any:
        return partial(self._call, method, "unary")

    def unary_stream(self, method: str, *_: Any, **__: Any) -> Any:
        return partial(self._call, method, "server_stream")

    def stream_unary(self, method: str, *_: Any, **__: Any) -> Any:
        return partial(self._call, method, "client_stream")

    def stream_stream(self, method: str, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"{method}: no service that shares a process has calls with two streams")

    def _call(
        self, path: str, kind: str, request: Any, timeout: float | None = None, metadata: Metadata | None = None
    ) -> LocalCall:
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        call = LocalCall(timeout, metadata or ())
        if self._address.hosted is None:
            call.end(grpc.StatusCode.UNAVAILABLE, _GONE)
            return call
        self._address.hosted.begin(call, path, kind, request)
        if call.task:
            self._open.add(call)
            call.task.add_done_callback(lambda _: self._open.discard(call))
        return call

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        here = self._address.hosted is not None
        return grpc.ChannelConnectivity.READY if here else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        if self.get_state() is last_observed_state:
            await self._address.change()

    async def channel_ready(self) -> None:
        while (state := self.get_state()) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """End the calls of this channel, after `grace` seconds at the latest."""
        self._closed = True
        tasks = [call.task for call in self._open if call.task]
        if not tasks:
            return
        if grace:
            await asyncio.wait(tasks, timeout=grace)
        for call in tuple(self._open):
            call.cancel()
        await asyncio.wait(tasks, timeout=_CLEAN_UP_S)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
