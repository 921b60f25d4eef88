"""MCP servers by HTTP that have sessions, as those of 2025 have: what becomes of a session that is over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.tool.v1 import tool_pb2
from services.gateway.settings.tools import ToolSettings, ToolSourceSettings
from services.gateway.tools import mcp_source, mcp_streams
from services.gateway.tools.mcp_source import McpSource
from services.gateway.tools.source import CallAttempt
from services.runtime.errors import TooLate, Unavailable
from tests.waiting import until

_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "0"}}
_RESULTS = {
    "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "hello"}]},
}


class OldServer:
    """Knows its `sessions`, which are numbered. `silent`: it answers no DELETE. `instead`: its answer to a call.
    `unanswered`: the beginnings of methods that it does not answer. `tools`: what it lists, one on each page."""

    def __init__(self) -> None:
        self.sessions = set[str]()
        self.begun = self.parted = 0
        self.silent = False
        self.instead = b""
        self.unanswered: tuple[str, ...] = ()
        self.tools: list[dict[str, Any]] = []
        self.ignored = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> str:
        """The address of the server."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/mcp"

    async def __aexit__(self, *exc: object) -> None:
        assert self._server
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if answer := self._answer(start.split()[0], headers.get("mcp-session-id", ""), body):
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, method: str, session: str, body: bytes) -> bytes:
        if method == "DELETE":
            self.parted += 1
            return b"" if self.silent else _http(200)
        if method != "POST":
            return _http(405)
        asked = json.loads(body)
        if asked["method"] == "initialize":
            self.begun += 1
            self.sessions.add(session := str(self.begun))
            return _http(200, _HELLO, asked["id"], session)
        if session not in self.sessions:
            return _http(404 if session else 400)
        if asked["method"].startswith(self.unanswered):
            self.ignored += 1
            return b""
        if self.instead and asked["method"] == "tools/call":
            return self.instead
        if self.tools and asked["method"] == "tools/list":
            page = int(asked.get("params", {}).get("cursor", 0))
            more = {"nextCursor": str(page + 1)} if page + 1 < len(self.tools) else {}
            return _http(200, {"tools": [self.tools[page]], **more}, asked["id"])
        return _http(200, _RESULTS.get(asked["method"], {}), asked["id"]) if "id" in asked else _http(202)


def _http(status: int, result: object = None, number: object = None, session: str = "") -> bytes:
    body = b"" if result is None else json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    headers = f"content-length: {len(body)}\r\ncontent-type: application/json\r\n"
    headers += f"mcp-session-id: {session}\r\n" if session else ""
    return f"HTTP/1.1 {status} -\r\n{headers}\r\n".encode() + body


@pytest.fixture
def server() -> OldServer:
    return OldServer()


@pytest.fixture
async def source(server: OldServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[McpSource]:
    """Connected to it."""
    monkeypatch.setattr(mcp_source, "_PAUSE_S", 0.01)
    monkeypatch.setattr(mcp_streams, "_PARTING_S", 0.1)
    monkeypatch.setattr(mcp_streams, "_PROMPT_S", 0.2)
    monkeypatch.setattr(mcp_streams, "_SPARE", 2)
    async with server as url:
        source = McpSource("web", ToolSourceSettings.model_validate({"url": url, "concurrency": 1}), ToolSettings())
        running = asyncio.create_task(source.run())
        assert [each.tool.name for each in await source.list("", 10)] == ["echo"]
        assert (await call(source)).content == "hello"
        yield source
        running.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait({running})


async def call(source: McpSource, within_s: float = 20.0) -> tool_pb2.CallToolResponse:
    return await source.call(CallAttempt("echo", "{}", "key", "acme", within_s, INVALID_SPAN))


async def _called_again(source: McpSource) -> Any:
    try:
        return await call(source, 2.0)
    except (Unavailable, TooLate):
        return None


@pytest.mark.parametrize("silent", [False, True])
async def test_a_server_that_does_not_know_its_session_any_more_is_called_in_a_new_one(
    server: OldServer, source: McpSource, silent: bool
) -> None:
    server.silent = silent
    server.sessions.clear()  # it was started again
    with pytest.raises(Unavailable, match="it does not know the session any more"):
        await call(source)
    again = await until(lambda: _called_again(source))
    assert (again.content, again.failed, server.begun) == ("hello", False, 2)
    assert server.parted == 1


@pytest.mark.parametrize(
    ("unanswered", "calls", "ignored"),
    [
        pytest.param(("tools/call",), 3, 3, id="as many calls as there are connections"),
        pytest.param(("tools/call", "notifications/"), 1, 2, id="a call and its cancellation"),
    ],
)
async def test_calls_without_an_answer_do_not_keep_a_server_from_others(
    server: OldServer, source: McpSource, unanswered: tuple[str, ...], calls: int, ignored: int
) -> None:
    server.unanswered = unanswered
    for _ in range(calls):
        with pytest.raises(TooLate):
            await call(source, 0.1)
    await until(lambda: server.ignored == ignored)
    server.unanswered = ()
    assert (await until(lambda: _called_again(source))).content == "hello"


@pytest.mark.parametrize(
    "headers", ["302 -\r\nlocation: http://elsewhere/", "202 -", "200 -\r\ncontent-type: text/html"]
)
async def test_a_server_whose_answer_to_a_call_is_no_message_is_unavailable(
    server: OldServer, source: McpSource, headers: str
) -> None:
    server.instead = f"HTTP/1.1 {headers}\r\ncontent-length: 0\r\n\r\n".encode()
    with pytest.raises(Unavailable) as problem:
        await call(source)
    assert problem.value.message == "web: MCPError"  # its own words may be addresses


async def test_a_server_silent_at_the_end_of_a_session_does_not_delay_the_gateway(
    server: OldServer, source: McpSource
) -> None:
    server.silent = True


async def test_a_used_tool_is_found_behind_many_that_are_not(server: OldServer) -> None:
    server.tools = [{"name": f"tool_{number}", "inputSchema": {"type": "object"}} for number in range(5)]
    async with server as url:
        own = ToolSourceSettings.model_validate({"url": url, "tools": ["tool_4"]})
        source = McpSource("web", own, ToolSettings(max_tools=2))
        running = asyncio.create_task(source.run())
        try:
            assert [each.tool.name for each in await source.list("", 10)] == ["tool_4"]
        finally:
            running.cancel()
            await asyncio.wait({running})
