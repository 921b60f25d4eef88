"""The boundary of a service: bytes come in, bytes go out, and no exception crosses it by accident.

gRPC for Python would parse requests before our code runs (a malformed one comes back as UNKNOWN) and would send the
text of an unhandled exception to the caller. So handlers here are registered without (de)serializers, and everything
happens inside one `try`. In order, outermost first: trace → errors → metrics → identity → authorize → read → parse →
servicer. Whether a caller may call is asked of the service's `admit`, and of a servicer that has an
`authorize(metadata, identity)` method, which raises for a caller that it does not know; where strangers call, before
their request is read (`first_message.py`), and what is held of that is bounded (`arrival.py`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction
from types import MethodType
from typing import Any, TypeVar

import grpc
from google.protobuf import duration_pb2
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.trace import Span, StatusCode
from prometheus_client import Histogram

from services.runtime import telemetry
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError, Starting
from services.runtime.rpc import first_message, gone_callers
from services.runtime.rpc.arrival import FREE, Arrival
from services.runtime.rpc.authorization import Admit, anyone
from services.runtime.rpc.decode_errors import parser

TRACE_ID_HEADER = "x-hedgerow-trace-id"
DOMAIN = "hedgerow"  # of google.rpc.ErrorInfo
_TYPE_PREFIX = "type.googleapis.com/"  # of the type of an Any
_log = logging.getLogger(__name__)
_STATUS = {status.value[0]: status for status in grpc.StatusCode}
_SECONDS = Histogram(
    "hedgerow_rpc_seconds", "Time to serve a call, to its last message.", ["service", "method", "code"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, *telemetry.LONG_S),
)  # fmt: skip
_seconds = cache(_SECONDS.labels)  # `labels` takes a lock and formats its values each time
_is_coroutine = cache(iscoroutinefunction)


@dataclass(frozen=True, slots=True)
class Call:
    """The part of a call, beyond its request, that a servicer may use."""

    metadata: tuple[tuple[str, str | bytes], ...]
    deadline: Deadline
    span: Span
    peer: str = ""  # the identity that the caller's certificate proves; empty in plain text
    admitted: Callable[[], None] = lambda: None  # to be called as soon as it is

    def header(self, name: str) -> str | None:
        """The first text value of a metadata key, or None."""
        return header(self.metadata, name)


def header(metadata: Iterable[tuple[str, str | bytes]], name: str) -> str | None:
    """The first text value of a metadata key, or None."""
    return next((value for key, value in metadata if key == name and isinstance(value, str)), None)


M = TypeVar("M", bound=Message)
Servicer = Any  # has one method per RPC: unary `async def`, streaming `async def … yield` or `async def (…, send)`
_Bound = MethodType  # of a servicer
_Context = Any  # grpc.aio.ServicerContext over bytes
_Given = Any  # a request, in bytes or as it is, or an asynchronous iterator of what it will come from
_Serve = Callable[[_Bound, Call, Arrival], Awaitable[Any]]


def handlers(
    descriptor: ServiceDescriptor, servicers: Mapping[str, Servicer], admit: Admit = anyone, first_message_ms: int = 0
) -> grpc.GenericRpcHandler:
    """Handlers for every RPC of a service, for callers that `admit` takes.

    `servicers` is asked at each call, by the service's full name: until it has an entry, calls get UNAVAILABLE.
    `first_message_ms`: how long a call's first message may take from its headers on; 0: as long as it likes.
    """
    within_s = first_message_ms / 1000
    methods = {
        method.name: _handler(method, Method(method, servicers, admit, within_s), headers_first=within_s > 0)
        for method in descriptor.methods
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, methods)


def methods_by_path(
    descriptors: Iterable[ServiceDescriptor],
    servicers: Mapping[str, Servicer],
    admit: Admit = anyone,
    *,
    copied: bool = False,
) -> Mapping[str, Method]:
    """Every RPC of these services. `copied`: for callers in this process; messages are copied, and never become
    bytes."""
    return {
        f"/{descriptor.full_name}/{method.name}": Method(method, servicers, admit, copied=copied)
        for descriptor in descriptors
        for method in descriptor.methods
    }


def _handler(method: MethodDescriptor, serve: Method, *, headers_first: bool) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of a method. With `headers_first` every request is handled as a stream: see `first_message.py`."""
    match method.client_streaming or headers_first, method.server_streaming:
        case True, True:
            streamed = serve.both_stream if method.client_streaming else serve.server_stream
            return grpc.stream_stream_rpc_method_handler(streamed)
        case True, False:
            return grpc.stream_unary_rpc_method_handler(serve.client_stream if method.client_streaming else serve.unary)
        case False, True:
            return grpc.unary_stream_rpc_method_handler(serve.server_stream)
    return grpc.unary_unary_rpc_method_handler(serve.unary)


class Method:
    """An RPC in the form that gRPC calls. Messages are bytes, or `copied`."""

    def __init__(
        self,
        method: MethodDescriptor,
        servicers: Mapping[str, Servicer],
        admit: Admit = anyone,
        within_s: float = 0,
        *,
        copied: bool = False,
    ):
        self._method, self._name, self._service = method, method.name, method.containing_service.full_name
        self.has_requests, self.has_replies = method.client_streaming, method.server_streaming  # streams of them
        self._servicers, self._admit, self._within_s = servicers, admit, within_s
        self._parse: Callable[[Any], Message] = copy_of if copied else parser(GetMessageClass(method.input_type))
        self._dump: Callable[[Any], Any] = copy_of if copied else GetMessageClass(method.output_type).SerializeToString

    async def unary(self, given: _Given, context: _Context) -> Any:
        async def serve(method: _Bound, call: Call, arrival: Arrival) -> Any:
            return self._dump(await method(await self._request(given, context, arrival), call))

        return await self._guard(context, serve)

    async def server_stream(self, given: _Given, context: _Context) -> None:
        async def send(reply: Message) -> None:
            await gone_callers.write(context, self._dump(reply))

        async def serve(method: _Bound, call: Call, arrival: Arrival) -> None:
            request = await self._request(given, context, arrival)
            if _is_coroutine(method.__func__):
                await method(request, call, send)
                return
            async with aclosing(method(request, call)) as replies:
                async for reply in replies:
                    await gone_callers.write(context, self._dump(reply))

        await self._guard(context, serve)

    async def client_stream(self, requests: AsyncIterator[Any], context: _Context) -> Any:
        async def serve(method: _Bound, call: Call, arrival: Arrival) -> Any:
            return self._dump(await method(self._requests(requests, arrival), call))

        return await self._guard(context, serve)

    async def both_stream(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        async def serve(method: _Bound, call: Call, arrival: Arrival) -> None:
            async with aclosing(method(self._requests(requests, arrival), call)) as replies:
                async for reply in replies:
                    await gone_callers.write(context, self._dump(reply))

        await self._guard(context, serve)

    async def _request(self, given: _Given, context: _Context, arrival: Arrival) -> Message:
        if isinstance(given, Message):
            return given  # of a caller in this process: a copy, made for this call alone
        if isinstance(given, bytes):
            return self._parse(given)
        return self._parse(await arrival.one(lambda: first_message.message(context, self._within_s)))

    def _requests(self, requests: AsyncIterator[bytes], arrival: Arrival) -> AsyncIterator[Message]:
        raws = first_message.messages(requests, self._within_s or None)
        return (self._parse(raw) async for raw in arrival.all(raws))

    def _servicer(self) -> Servicer:
        servicer = self._servicers.get(self._service)
        if servicer is None:
            raise Starting(f"{self._service} is starting")
        return servicer

    def _arrival(self, servicer: Servicer, metadata: telemetry.Metadata, peer: str, span: Span) -> Arrival:
        """The request of a caller that may call."""
        authorize, arriving = getattr(servicer, "authorize", None), getattr(servicer, "arriving", None)
        credential = authorize(metadata, peer) if authorize else None
        arrival: Arrival = arriving(self._method, credential, span) if arriving else FREE
        return arrival

    async def _guard(self, context: _Context, serve: _Serve) -> Any:
        await asyncio.sleep(0)  # most calls of a flood of cancelled ones are cancelled by then, and cost no more
        started, code, arrival = time.perf_counter(), "OK", FREE
        metadata = tuple(context.invocation_metadata() or ())
        with telemetry.server_span(f"{self._service}/{self._name}", metadata) as span:
            if trace_metadata := _trace_metadata(metadata, span):
                context.set_trailing_metadata(trace_metadata)
            remaining = context.time_remaining()
            deadline = Deadline.never() if remaining is None else Deadline.after(remaining)
            try:
                peer, servicer = self._admit(context), self._servicer()
                arrival = self._arrival(servicer, metadata, peer, span)
                call = Call(metadata, deadline, span, peer, arrival.admitted)
                return await serve(getattr(servicer, self._name), call, arrival)
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except Exception as error:  # the boundary: everything else must become a status
                status = to_status(error, telemetry.trace_id(span))
                code = code_pb2.Code.Name(status.code)
                self._report_end(started, error)
                span.set_status(StatusCode.ERROR, code)
                _end(context, status, trace_metadata)
                return b""  # gRPC drops it: the status is not OK
            finally:
                arrival.admitted()
                _seconds(self._service, self._name, code).observe(time.perf_counter() - started)
                if code == "OK":
                    self._report_end(started)

    def _report_end(self, started: float, error: Exception | None = None) -> None:
        """A servicer that has an `ended` method hears how each call ends, unless its caller has left."""
        if ended := getattr(self._servicers.get(self._service), "ended", None):
            ended(self._name, time.perf_counter() - started, error)


def _end(context: _Context, status: status_pb2.Status, trace_metadata: telemetry.Metadata) -> None:
    """End a call with a status. gRPC's own `abort` raises an exception that its call keeps, and that keeps the call,
    with the request and all that was made of it, until Python looks for garbage: a flood of refused requests was kept
    in memory by the hundred."""
    context.set_code(_STATUS[status.code])
    context.set_details(status.message)
    context.set_trailing_metadata((*trailers(status), *trace_metadata))


def _trace_metadata(metadata: Iterable[tuple[str, str | bytes]], span: Span) -> telemetry.Metadata:
    """The trace id, for the log of a proxy (Envoy gives each request an id) whose caller has sent none."""
    keys = {key for key, _ in metadata}
    wanted = "x-request-id" in keys and "traceparent" not in keys
    return ((TRACE_ID_HEADER, telemetry.trace_id(span)),) if wanted else ()


def copy_of(message: M) -> M:
    """A copy of a message, so that changes on one side are not seen on the other."""
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def to_status(error: Exception, trace_id: str = "") -> status_pb2.Status:
    """The one place where typed causes become statuses. What is not a ServiceError is a bug: its text stays here.
    `trace_id`: of the call that it ends, for the caller to name it by."""
    if not isinstance(error, ServiceError):
        correlation = secrets.token_hex(8)
        # Where, not what: the message of a foreign exception may hold a secret.
        where = "".join(traceback.format_list(traceback.extract_tb(error.__traceback__)))
        _log.error("internal error %s: %s at\n%s", correlation, type(error).__name__, where)
        error = ServiceError(f"internal error, correlation id {correlation}", correlation_id=correlation)
    status = status_pb2.Status(code=error.code, message=error.message)
    metadata = {**error.metadata, "trace_id": trace_id} if trace_id else error.metadata
    _add_detail(status, error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata))
    if error.retry_delay_s is not None:
        seconds, nanos = divmod(round(error.retry_delay_s * 1e9), 1_000_000_000)
        delay = duration_pb2.Duration(seconds=seconds, nanos=nanos)
        _add_detail(status, error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def _add_detail(status: status_pb2.Status, detail: Message) -> None:
    """Add a detail as `Any.Pack` does, in half of its time: thousands of calls may be refused in a second."""
    status.details.add(type_url=_TYPE_PREFIX + detail.DESCRIPTOR.full_name, value=detail.SerializeToString())


def trailers(status: status_pb2.Status) -> tuple[tuple[str, bytes], ...]:
    """Trailing metadata that carries the status's details to any gRPC language."""
    return (("grpc-status-details-bin", status.SerializeToString()),)
