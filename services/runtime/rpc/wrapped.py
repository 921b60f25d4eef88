"""Foreign services behind our boundary: health and reflection as grpcio brings them.

Registered as they come, gRPC would parse their requests before any code of ours runs: a malformed one would come back
as UNKNOWN, and no key would be checked. Here their handlers get bytes, like those of `boundary`, and the order
is identity → authorize → read → parse → servicer, all of it inside one `try`. Their calls are neither traced nor
measured: probes come all the time and say nothing about the service's own.

Every caller may call them, so the bytes of their requests are bounded, for each service and fairly by connection: a
request counts as `arrival.Reading` says, and a stream, once its first message is there, as the largest message for as
long as it is open.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from hedgerow.channel import MAX_MESSAGE_BYTES
from services.runtime.deadline import until_set
from services.runtime.policy.waiting_bytes import Held, WaitingBytes
from services.runtime.rpc import first_message, gone_callers
from services.runtime.rpc.arrival import Reading
from services.runtime.rpc.authorization import Admit, anyone
from services.runtime.rpc.boundary import to_status, trailers
from services.runtime.rpc.decode_errors import parser

Metadata = tuple[tuple[str, str | bytes], ...]
Authorize = Callable[[Metadata, str], None]  # (metadata, identity); raises a ServiceError for a refused caller
_Context = Any  # grpc.aio.ServicerContext
_Replies = Any  # a coroutine that writes its replies itself, or an asynchronous generator of them
_LARGEST_AT_ONCE = 16  # requests of the largest size, for each service; one connection gets half of them
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


def allow(metadata: Metadata, identity: str) -> None:
    """Refuse no caller."""


def handlers(
    descriptor: ServiceDescriptor,
    servicer: object,
    ended: asyncio.Event,
    authorize: Authorize = allow,
    admit: Admit = anyone,
    first_message_ms: int = first_message.DEFAULT_MS,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> grpc.GenericRpcHandler:
    """Handlers for the RPCs that a grpc.aio servicer has; to the others gRPC answers UNIMPLEMENTED. Streams end when
    `ended` is set: a health watch would hold up a shutdown for as long as it may take."""
    waiting = WaitingBytes(_LARGEST_AT_ONCE * max_message_bytes)
    shared = ended, authorize, admit, first_message_ms / 1000, waiting, max_message_bytes
    methods = {
        method.name: _handler(method, _Wrapped(method, getattr(servicer, method.name), *shared))
        for method in descriptor.methods
        if _is_asynchronous(getattr(servicer, method.name, None))
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def _is_asynchronous(method: object) -> bool:
    """The bases that grpcio generates define every method, as plain functions that only raise."""
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def _handler(method: MethodDescriptor, wrapped: _Wrapped) -> grpc.RpcMethodHandler[Any, Any]:
    serializer = GetMessageClass(method.output_type).SerializeToString
    match method.client_streaming, method.server_streaming:
        case False, False:
            return grpc.stream_unary_rpc_method_handler(wrapped.unary, response_serializer=serializer)
        case False, True:
            return grpc.stream_stream_rpc_method_handler(wrapped.server_stream, response_serializer=serializer)
        case True, True:
            return grpc.stream_stream_rpc_method_handler(wrapped.both_stream, response_serializer=serializer)
    raise TypeError(f"{method.full_name}: streams of requests with one reply are not supported yet")


class _Wrapped:
    """An RPC in the form that gRPC calls."""

    def __init__(
        self,
        method: MethodDescriptor,
        serve: Callable[[Any, _Context], Any],
        ended: asyncio.Event,
        authorize: Authorize,
        admit: Admit,
        within_s: float,
        waiting: WaitingBytes,
        most_bytes: int,
    ):
        self._serve, self._ended, self._authorize, self._admit = serve, ended, authorize, admit
        self._waiting, self._most_bytes = waiting, most_bytes
        self._parse, self._within_s = parser(GetMessageClass(method.input_type)), within_s

    async def unary(self, _: AsyncIterator[bytes], context: _Context) -> Any:
        async def serve() -> Any:
            return await self._serve(await self._request(context), context)

        return await self._guard(context, serve)

    async def server_stream(self, _: AsyncIterator[bytes], context: _Context) -> None:
        async def serve() -> None:
            await self._write(self._serve(await self._request(context), context), context)

        await self._guard(context, serve)

    async def both_stream(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        await self._guard(context, lambda: self._write(self._serve(self._parsed(requests, context), context), context))

    async def _write(self, replies: _Replies, context: _Context) -> None:
        await until_set(self._ended, _write(replies, context))

    async def _request(self, context: _Context) -> Any:
        with self._held(context) as held:
            reading = Reading(held, self._most_bytes)
            return self._parse(await reading.message(lambda: first_message.message(context, self._within_s)))

    async def _parsed(self, requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[Any]:
        # Not a generator expression: that would begin to read at once, also for a caller without permission.
        async with aclosing(first_message.messages(requests, self._within_s)) as messages:
            with self._held(context) as held, suppress(StopAsyncIteration):
                yield self._parse(await Reading(held, self._most_bytes).message(partial(anext, messages)))
                held.keep(self._most_bytes)
                async for raw in messages:
                    yield self._parse(raw)

    @contextmanager
    def _held(self, context: _Context) -> Iterator[Held]:
        """Bytes that one call of this connection holds inside."""
        held = Held(self._waiting, context.peer())
        try:
            yield held
        finally:
            held.give_back()

    async def _guard(self, context: _Context, serve: Callable[[], Awaitable[Any]]) -> Any:
        try:
            self._authorize(tuple(context.invocation_metadata() or ()), self._admit(context))
            return await serve()
        except grpc.aio.AbortError:  # the servicer's own answer
            raise
        except Exception as error:  # the boundary: everything else must become a status
            status = to_status(error)
            await context.abort(_STATUS[status.code], status.message, trailers(status))


async def _write(replies: _Replies, context: _Context) -> None:
    if inspect.isawaitable(replies):
        await replies
        return
    async with aclosing(replies):
        async for reply in replies:
            await gone_callers.write(context, reply)
