"""Messages of an MCP server by HTTP, and their limits."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse, jsonrpc_message_adapter

from services.gateway.settings.tools import ToolSettings
from services.gateway.tools import mcp_streams
from services.gateway.tools.mcp_source import _question_argument

LIMIT = 1_024


class Pieces(httpx2.AsyncByteStream):
    """A body without end, and how much of it was taken."""

    taken = 0

    def __init__(self, piece: bytes = b"x" * 100):
        self._piece = piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.taken += len(self._piece)
            yield self._piece


async def body_of(response: httpx2.Response, ended: Callable[[str], None] = print) -> bytes:
    limits = ToolSettings(max_message_bytes=LIMIT)
    transport = mcp_streams._Bounded(httpx2.MockTransport(lambda request: response), limits, ended)
    async with httpx2.AsyncClient(transport=transport) as client, client.stream("GET", "http://server/mcp") as answer:
        pieces = b""
        async for piece in answer.aiter_raw():
            pieces += piece
            if len(pieces) > 10 * LIMIT:
                break
        return pieces


async def test_a_body_without_end_is_read_to_the_limit() -> None:
    pieces = Pieces()
    response = httpx2.Response(200, stream=pieces, headers={"content-type": "application/json"})
    with pytest.raises(httpx2.StreamError, match="messages of at most 1024 bytes, got a longer one"):
        await body_of(response)
    assert pieces.taken <= LIMIT + 100


async def test_a_body_within_the_limit_comes_as_it_is() -> None:
    response = httpx2.Response(200, stream=httpx2.ByteStream(b"{}"), headers={"content-type": "application/json"})
    assert await body_of(response) == b"{}"


async def test_a_stream_of_events_may_be_longer() -> None:
    response = httpx2.Response(200, stream=Pieces(), headers={"content-type": "text/event-stream"})
    assert len(await body_of(response)) > 10 * LIMIT


@pytest.mark.parametrize("event", [b"event: x\ndata: y\n\n", b": a comment\r\n"])
async def test_events_that_are_no_messages_are_counted_too(event: bytes) -> None:
    problems = list[str]()
    response = httpx2.Response(200, stream=Pieces(event * 4_000), headers={"content-type": "text/event-stream"})
    with pytest.raises(httpx2.StreamError, match="at most 500 messages of 8192 bytes a second"):
        await body_of(response, problems.append)
    assert problems == ["at most 500 messages of 8192 bytes a second, got more"]


async def test_a_stream_that_its_server_has_opened_again_and_again_is_too_much() -> None:
    event, problems = b"id: 1\nretry: 0\ndata:\n\n", list[str]()

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=event, headers={"content-type": "text/event-stream"})

    transport = mcp_streams._Bounded(httpx2.MockTransport(answer), ToolSettings(), problems.append)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.StreamError, match="at most 500 messages of 8192 bytes a second"):
            await asyncio.gather(*(client.get("http://server/mcp") for _ in range(200)))
    assert set(problems) == {"at most 500 messages of 8192 bytes a second, got more"}


async def test_a_compressed_body_is_refused_before_it_is_unpacked() -> None:
    packed = httpx2.ByteStream(gzip.compress(b"x" * 100_000_000))
    response = httpx2.Response(200, stream=packed, headers={"content-encoding": "gzip"})
    with pytest.raises(httpx2.DecodingError, match="not requested"):
        await body_of(response)


def test_messages_are_counted_by_the_second() -> None:
    rate = mcp_streams._Rate(ToolSettings(max_messages_per_s=3))
    for _ in range(3):
        rate.count(1)
    with pytest.raises(mcp_streams._TooMuch, match="at most 3 messages of 8192 bytes a second"):
        rate.count(1)


async def test_a_few_long_messages_of_a_command_are_too_many() -> None:
    limits = ToolSettings()
    reader = asyncio.StreamReader(limits.max_message_bytes)
    reader.feed_data(b"".join(b'"%s"\n' % (b"x" * 1_000_000) for _ in range(5)))
    out, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    async with out, incoming:
        why = await mcp_streams._lines(reader, out, mcp_streams._Rate(limits), limits)
    assert why == "at most 500 messages of 8192 bytes a second, got more"


async def test_a_few_long_events_are_too_many() -> None:
    event = b"data: " + b"x" * 1_000_000
    response = httpx2.Response(200, stream=Pieces(event), headers={"content-type": "text/event-stream"})
    limits, problems = ToolSettings(), list[str]()
    transport = mcp_streams._Bounded(httpx2.MockTransport(lambda request: response), limits, problems.append)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.StreamError, match="at most 500 messages of 8192 bytes a second"):
            await client.get("http://server/mcp")
    assert problems == ["at most 500 messages of 8192 bytes a second, got more"]


async def by_http(answer: str) -> SessionMessage:
    """The messages that reach the SDK."""

    @asynccontextmanager
    async def server() -> AsyncIterator[mcp_streams.Streams]:
        out, incoming = anyio.create_memory_object_stream[SessionMessage](1)
        async with out, incoming:
            await out.send(SessionMessage(jsonrpc_message_adapter.validate_json(answer)))
            yield incoming, None

    async with mcp_streams._counted(server(), mcp_streams._Rate(ToolSettings()), print) as (incoming, _):
        return await incoming.receive()


async def by_a_command(answer: str) -> SessionMessage:
    """The same of what a child process has written."""
    reader = asyncio.StreamReader()
    reader.feed_data(answer.encode() + b"\n")
    reader.feed_eof()
    out, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    async with out, incoming:
        await mcp_streams._lines(reader, out, mcp_streams._Rate(ToolSettings()), ToolSettings())
        message = await incoming.receive()
        assert isinstance(message, SessionMessage)
        return message


@pytest.mark.parametrize("way", [by_http, by_a_command])
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": []}, {"content": [], "resultType": "complete"}),
        ({"resultType": "input_required"}, {"resultType": "input_required"}),
    ],
)
async def test_a_result_that_does_not_say_what_it_is_is_a_whole_one(
    way: Callable[[str], Awaitable[SessionMessage]], result: dict[str, Any], expected: dict[str, Any]
) -> None:
    message = await way(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))
    assert isinstance(message.message, JSONRPCResponse)
    assert message.message.result == expected


@pytest.mark.parametrize("way", [by_http, by_a_command])
async def test_of_many_requests_in_a_result_one_is_refused(way: Callable[[str], Awaitable[SessionMessage]]) -> None:
    requests = {str(number): {"method": "roots/list"} for number in range(1_000)}
    result = {"resultType": "input_required", "inputRequests": requests}
    message = await way(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))
    assert isinstance(message.message, JSONRPCResponse)
    assert message.message.result["inputRequests"] == {"0": {"method": "roots/list"}}


@pytest.mark.parametrize("way", [by_http, by_a_command])
@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ([{"name": "t", "outputSchema": {"pattern": "^(a+)+$"}}, {"name": "u"}], [{"name": "t"}, {"name": "u"}]),
        ([None], [None]),
        (3, 3),
    ],
)
async def test_no_result_is_validated_by_a_servers_schema(
    way: Callable[[str], Awaitable[SessionMessage]], tools: object, expected: object
) -> None:
    message = await way(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}}))
    assert isinstance(message.message, JSONRPCResponse)
    assert message.message.result["tools"] == expected


@pytest.mark.parametrize(
    ("schema", "argument"),
    [
        ({"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["query"]}, "query"),
        ({"properties": {"question": {"type": "string"}}}, "question"),
        ({"properties": {"query": {"type": "string"}, "user": {"type": "string"}}, "required": ["query", "user"]}, ""),
        ({"properties": {"query": {"type": "string"}, "user": {"type": "string"}}, "required": ["user"]}, ""),
        ({"properties": {"city": {"type": "string"}}, "required": ["city"]}, ""),
        ({"properties": {"query": {"type": "array"}}}, ""),
        ({"properties": "nonsense", "required": 3}, ""),
        ({}, ""),
    ],
)
def test_a_tool_takes_a_question_where_no_other_argument_is_needed(schema: dict[str, object], argument: str) -> None:
    assert _question_argument(schema) == argument
