"""Connections to MCP servers whose messages are bounded in size and number: a server that is broken, or means ill,
must cost this process little. The SDK's own read a line, or a body, of any length."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import islice
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

from services.gateway.settings.tools import ToolSettings

_INHERITED = ("PATH", "HOME", "LANG", "USER")
_PARTING_S = 1.0  # for a server to end after its input, and again after SIGTERM; for the end of a session
_PROMPT_S = 5.0  # to connect, for a free connection, and for a server to take a message
_SPARE = 100  # connections beside those of calls under way: an older server may keep those of calls that were cancelled
_LOOK_S = 0.01  # how often its group is looked at
_EVENTS = "text/event-stream"
_LINE_ENDS = 8  # characters that end lines, of an event with an id and a type
_COUNTED_BYTES = 8_192  # that count as a message: the CPU time of a message depends on its length
_RESUMED = 4  # messages that a GET counts as: a server says when its stream is opened again, even at once
_SESSION = "mcp-session-id"  # header
_METHOD_AND_ID = {"method", "id"}  # of a message that asks for an answer
Ended = Callable[[str], None]
Streams = tuple[Any, Any]  # what the SDK reads messages from, and writes them to


class _TooMuch(Exception):
    """A server that sends more than it may; the text names the limit and the value."""


@asynccontextmanager
async def command(
    words: Sequence[str], environment: Mapping[str, str], limits: ToolSettings, ended: Ended
) -> AsyncIterator[Streams]:
    """A server that is started as a child, in a group of its own. `ended` hears why it is of no more use."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=PIPE,
        stdout=PIPE,
        env={**inherited, **environment},
        limit=limits.max_message_bytes,
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    out, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(stream: asyncio.StreamReader) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with out:
                ended(await _lines(stream, out, _Rate(limits), limits))

    async def write(stream: asyncio.StreamWriter) -> None:
        try:
            async for message in to_send:
                stream.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                async with asyncio.timeout(_PROMPT_S):
                    await stream.drain()
        except (ConnectionError, TimeoutError):  # it may live on, and even talk
            ended("it accepts no more messages")
        except anyio.ClosedResourceError:
            pass

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(read, process.stdout)
            group.start_soon(write, process.stdin)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        for end in (out, incoming, outgoing, to_send):
            end.close()
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _lines(
    stream: asyncio.StreamReader,
    out: anyio.abc.ObjectSendStream[SessionMessage | Exception],
    rate: _Rate,
    limits: ToolSettings,
) -> str:
    """Hand on what the server says. Returns why that has ended."""
    try:
        while line := await stream.readline():
            rate.count(1 + len(line) / _COUNTED_BYTES)
            with suppress(ValueError):  # ignores what is no message
                await out.send(_adapted(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))))
    except ValueError:
        return f"messages of at most {limits.max_message_bytes} bytes, got a longer one"
    except _TooMuch as error:
        return str(error)
    return "it has ended"


async def _stop(process: Process) -> None:
    """Close its input, then send its group SIGTERM, then SIGKILL: its children may outlive it."""
    assert process.stdin
    process.stdin.close()
    for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
        if signal_number:
            _signal(process, signal_number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING_S):
                await process.wait()
                while _is_left(process):  # noqa: ASYNC110 - no event reports the end of a group
                    await asyncio.sleep(_LOOK_S)
                return


def _is_left(process: Process) -> bool:
    """Whether the group of an ended process still has members."""
    with suppress(ChildProcessError):  # orphans are children of process 1, which this process may be
        while os.waitpid(-process.pid, os.WNOHANG)[0]:
            pass
    return _signal(process, 0)


def _signal(process: Process, number: int) -> bool:
    """Send a signal to its group; 0 is none. Whether the group had members."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
        return True
    return False


@asynccontextmanager
async def http(
    url: str, authorization: str, concurrency: int, limits: ToolSettings, ended: Ended
) -> AsyncIterator[Streams]:
    """A server by streamable HTTP, for `concurrency` calls at once. Redirects are followed within its origin alone."""
    headers = {"accept-encoding": "identity"} | ({"authorization": authorization} if authorization else {})
    timeout = httpx2.Timeout(_PROMPT_S, read=None)  # each call has a deadline of its own
    connections = httpx2.Limits(max_connections=concurrency + _SPARE)
    transport = _Bounded(httpx2.AsyncHTTPTransport(limits=connections), limits, ended)
    async with httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport, trust_env=False) as client:
        inner = streamable_http_client(url, http_client=client, max_sse_event_size=limits.max_message_bytes)
        async with _counted(inner, _Rate(limits), ended) as streams:
            yield streams


@asynccontextmanager
async def _counted(inner: AbstractAsyncContextManager[Streams], rate: _Rate, ended: Ended) -> AsyncIterator[Streams]:
    """A connection whose messages are counted as they come."""
    out, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def count(source: Any) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with out:
                try:
                    async for message in source:
                        rate.count(1)
                        await out.send(_adapted(message))
                    ended("it cannot be reached")
                except _TooMuch as error:
                    ended(str(error))

    async with inner as (source, outgoing), anyio.create_task_group() as group, incoming:
        group.start_soon(count, source)
        yield incoming, outgoing
        group.cancel_scope.cancel()


def _adapted(message: SessionMessage | Exception) -> SessionMessage | Exception:
    """A message for the SDK.

    - A result without a type is `complete` (MCP 2026-07-28, for older servers); the SDK takes none without.
    - An `outputSchema` is left out: the SDK would validate results on the event loop, without a time limit, and a
      regular expression of the server's may take hours.
    - Of the requests in a result, the first is enough: the SDK refuses each in a task, and the call ends.
    - An invalid request is a fault of the connection: the SDK says so of a redirect, with its address, and of other
      content.
    """
    given = message.message if isinstance(message, SessionMessage) else None
    if isinstance(given, JSONRPCResponse):
        given.result.setdefault("resultType", "complete")
        tools = given.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
        if isinstance(requests := given.result.get("inputRequests"), dict):
            given.result["inputRequests"] = dict(islice(requests.items(), 1))
    elif isinstance(given, JSONRPCError) and given.error.code == INVALID_REQUEST:
        given.error.code = INTERNAL_ERROR
    return message


class _Rate:
    """Messages of the last second or so."""

    def __init__(self, limits: ToolSettings):
        self._most, self._began, self._count = limits.max_messages_per_s, time.monotonic(), 0.0

    def count(self, messages: float) -> None:
        """Count messages; a longer one counts once for each `_COUNTED_BYTES`. Raises `_TooMuch`."""
        if (now := time.monotonic()) - self._began >= 1:
            self._began, self._count = now, 0
        self._count += messages
        if self._count > self._most:
            raise _TooMuch(f"at most {self._most} messages of {_COUNTED_BYTES} bytes a second, got more")


class _TooLong(httpx2.StreamError):
    """A body that is longer, or comes faster, than it may."""


class _Bounded(httpx2.AsyncBaseTransport):
    """Bodies of bounded size, as they are; streams of events, whose events are bounded, of any length. `ended` hears
    that the server does not know the session any more, or that it sends, or has opened, too much."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, limits: ToolSettings, ended: Ended):
        self._inner, self._most_bytes, self._rate, self._ended = inner, limits.max_message_bytes, _Rate(limits), ended

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            return await self._part(request)
        if request.method == "GET":
            self._count(_RESUMED)
        if request.method == "POST" and not json.loads(request.content).keys() >= _METHOD_AND_ID:
            request.extensions["timeout"]["read"] = _PROMPT_S  # the SDK sends nothing else meanwhile
        response = await self._inner.handle_async_request(request)
        if response.status_code == httpx2.codes.NOT_FOUND and request.method == "POST" and _SESSION in request.headers:
            self._ended("it does not know the session any more")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("an encoding that was not requested")  # a few bytes may be a gigabyte
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        is_short = not response.headers.get("content-type", "").startswith(_EVENTS)
        response.stream = _BoundedStream(response.stream, self._bounded if is_short else self._counted)
        return response

    async def _bounded(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for piece in pieces:
            size += len(piece)
            if size > self._most_bytes:
                raise _TooLong(f"messages of at most {self._most_bytes} bytes, got a longer one")
            self._count(len(piece) / _COUNTED_BYTES)
            yield piece

    async def _counted(self, pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Also events that are no messages: the SDK logs each."""
        async for piece in pieces:
            self._count((piece.count(b"\n") + piece.count(b"\r")) / _LINE_ENDS + len(piece) / _COUNTED_BYTES)
            yield piece

    def _count(self, messages: float) -> None:
        try:
            self._rate.count(messages)
        except _TooMuch as error:
            self._ended(str(error))
            raise _TooLong(str(error)) from None

    async def _part(self, request: httpx2.Request) -> httpx2.Response:
        """The end of a session. Raises TimeoutError: nothing waits long for a server that is of no more use."""
        async with asyncio.timeout(_PARTING_S):
            response = await self._inner.handle_async_request(request)
            await response.aclose()
        return httpx2.Response(response.status_code)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, checked: Callable[[AsyncIterable[bytes]], AsyncIterator[bytes]]):
        self._inner, self._checked = inner, checked

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._checked(self._inner)

    async def aclose(self) -> None:
        await self._inner.aclose()
