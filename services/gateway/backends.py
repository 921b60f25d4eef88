"""The services behind the gateway, as the rest of it sees them: calls that start at once, and errors of our own tree.

The one module of the gateway that knows gRPC. Text from a model crosses it as raw bytes, read one message at a time:
gRPC's own deserializer and iterator cost more than the relay itself (docs/benchmarks.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError

from hedgerow.cache.v1 import cache_pb2
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.runtime.errors import Exhausted, InvalidInput, Missing, ServiceError, TooLate, Unavailable
from services.runtime.telemetry import Metadata

_log = logging.getLogger(__name__)
_ERRORS: dict[grpc.StatusCode, type[ServiceError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: TooLate,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Exhausted,
    grpc.StatusCode.NOT_FOUND: Missing,
}


_ENDING: set[asyncio.Task[None]] = set()  # generations whose status is still on the way


class Refused(InvalidInput):
    """A service behind the gateway refused the request; its words are for the caller."""

    def __init__(self, message: str):
        ServiceError.__init__(self, message)


def translate(error: grpc.aio.AioRpcError, who: str) -> ServiceError:
    """What a failed call to `who` means. Codes without a meaning of their own here are a broken backend."""
    details = error.details() or ""
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return Refused(details)
    return _ERRORS.get(error.code(), Unavailable)(f"{who}: {error.code().name}: {details}")


class Pending:
    """A unary call under way."""

    def __init__(self, call: grpc.aio.UnaryUnaryCall[Any, Any], who: str):
        self._call, self._who = call, who

    async def reply(self) -> Any:
        try:
            return await self._call
        except grpc.aio.AioRpcError as error:
            raise translate(error, self._who) from None

    def cancel(self) -> None:
        """Has no effect once it has ended."""
        self._call.cancel()


class Cache:
    """The cache service."""

    def __init__(self, channel: grpc.aio.Channel):
        self._lookup = _unary(channel, cache_pb2, "CacheService", "Lookup")
        self._store = _unary(channel, cache_pb2, "CacheService", "Store")
        self._watch = _server_stream(channel, cache_pb2, "CacheService", "WatchInvalidations")

    def lookup(self, request: cache_pb2.LookupRequest, timeout_s: float, metadata: Metadata) -> Pending:
        """Start a lookup that ends after `timeout_s` at the latest."""
        return Pending(self._lookup(request, timeout=timeout_s, metadata=metadata), "cache")

    async def store(self, request: cache_pb2.StoreRequest, timeout_s: float) -> cache_pb2.StoreResponse:
        return await Pending(self._store(request, timeout=timeout_s), "cache").reply()  # type: ignore[no-any-return]

    def invalidations(self) -> AsyncIterator[cache_pb2.WatchInvalidationsResponse]:
        """Removals as they happen; waits for the cache to be there, ends with `ServiceError` when it goes."""
        return _follow(self._watch(cache_pb2.WatchInvalidationsRequest(), wait_for_ready=True), "cache")


class Router:
    """The router."""

    def __init__(self, channel: grpc.aio.Channel):
        self._watch = _server_stream(channel, router_pb2, "RouterService", "WatchTable")
        self._observe = channel.stream_unary(
            "/hedgerow.router.v1.RouterService/Observe",
            request_serializer=router_pb2.ObserveRequest.SerializeToString,
            response_deserializer=router_pb2.ObserveResponse.FromString,
        )

    def tables(self) -> AsyncIterator[router_pb2.WatchTableResponse]:
        """The table, at once and at each change; waits for the router, ends with `ServiceError` when it goes."""
        return _follow(self._watch(router_pb2.WatchTableRequest(), wait_for_ready=True), "router")

    async def observe(self, requests: AsyncIterator[router_pb2.ObserveRequest]) -> None:
        """Send observations for as long as the router is there; raises `ServiceError` when it goes."""
        try:
            await self._observe(requests, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise translate(error, "router") from None


class Generation:
    """An answer that a model is writing. Messages are read as they come, whether or not anyone takes them: what arrives
    while the last ones are sent on is taken, and travels, together."""

    def __init__(self, call: grpc.aio.UnaryStreamCall[bytes, bytes], who: str):
        self._call, self._who = call, who
        self._inbox: list[llm_pb2.GenerateResponse] = []
        self._arrived = asyncio.Event()
        self._over, self._finished = False, False
        self._problem: ServiceError | None = None
        self._reading = asyncio.create_task(self._read())

    async def begins(self, within_s: float) -> bool:
        """Wait a little for the first message; whether it came, or failed to."""
        patience = asyncio.get_running_loop().call_later(within_s, self._arrived.set)
        await self._arrived.wait()
        patience.cancel()
        return bool(self._inbox) or self._over

    async def take(self) -> list[llm_pb2.GenerateResponse]:
        """All messages that have come since the last time, at least one; none after the last. Raises what the model or
        the way to it failed with: `TooLate` at the deadline it was started with."""
        while not self._inbox and not self._over:
            self._arrived.clear()
            await self._arrived.wait()
        taken, self._inbox = self._inbox, []
        if not taken and self._problem:
            raise self._problem
        return taken

    def close(self) -> None:
        """Stop the engine, unless it has finished: then only its status is on the way, and no one waits for that."""
        if self._finished:
            _ENDING.add(self._reading)
            self._reading.add_done_callback(_ENDING.discard)
        else:
            self._call.cancel()
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            while (raw := await self._call.read()) is not grpc.aio.EOF:
                message = llm_pb2.GenerateResponse.FromString(cast(bytes, raw))
                self._finished = message.HasField("finish")
                self._inbox.append(message)
                self._arrived.set()
        except grpc.aio.AioRpcError as error:
            self._problem = translate(error, self._who)
        except DecodeError:
            self._problem = Unavailable(f"{self._who}: sent what is not a message")
            self._call.cancel()
        finally:
            self._over = True
            self._arrived.set()


class Llm:
    """The llm service of one model."""

    def __init__(self, channel: grpc.aio.Channel, model: str):
        self._generate: Any = channel.unary_stream("/hedgerow.llm.v1.LLMService/Generate")
        self._model = model

    def generate(self, request: llm_pb2.GenerateRequest, timeout_s: float, metadata: Metadata) -> Generation:
        """Start an answer that ends after `timeout_s` at the latest."""
        call = self._generate(request.SerializeToString(), timeout=timeout_s, metadata=metadata)
        return Generation(call, self._model)


def _unary(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_unary(*_method(module, service, method))


def _server_stream(channel: grpc.aio.Channel, module: Any, service: str, method: str) -> Any:
    return channel.unary_stream(*_method(module, service, method))


def _method(module: Any, service: str, method: str) -> Iterable[Any]:
    """A method's path, serializer and deserializer, from its descriptor's module."""
    request, reply = getattr(module, f"{method}Request"), getattr(module, f"{method}Response")
    path = f"/{module.DESCRIPTOR.package}.{service}/{method}"
    return path, request.SerializeToString, reply.FromString


async def _follow(call: Any, who: str) -> AsyncIterator[Any]:
    try:
        async for message in call:
            yield message
    except grpc.aio.AioRpcError as error:
        raise translate(error, who) from None
    finally:
        call.cancel()


async def keep_up(step: Callable[[], Awaitable[None]], pause_s: float = 0.2) -> None:
    """Run `step`, which follows a backend, again whenever the backend goes away. Never returns."""
    while True:
        try:
            await step()
        except ServiceError as error:
            _log.info("%s; following again", error.message)
        await asyncio.sleep(pause_s)
