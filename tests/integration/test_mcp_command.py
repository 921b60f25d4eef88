"""MCP servers that are commands: how they end, and how they are ended."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.tool.v1 import tool_pb2
from services.gateway.settings.tools import ToolSettings, ToolSourceSettings
from services.gateway.tools import mcp_source, mcp_streams
from services.gateway.tools.mcp_source import McpSource
from services.gateway.tools.source import CallAttempt
from services.runtime.errors import Unavailable
from tests.integration import hostile_mcp
from tests.waiting import until

_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux' prctl
PING = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping"))


@pytest.fixture(autouse=True)
def _short_partings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_streams, "_PARTING_S", 0.1)
    monkeypatch.setattr(mcp_streams, "_PROMPT_S", 0.2)


@pytest.fixture
def adopting() -> Iterator[None]:
    """Orphans below this process are its children, as they are those of process 1."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(_CHILD_SUBREAPER, 0, 0, 0, 0)


@asynccontextmanager
async def server(script: str, notices: list[str]) -> AsyncIterator[Any]:
    """A server that is a script for `sh`; gives what takes messages to it."""
    async with mcp_streams.command(["sh", "-c", script], {}, ToolSettings(), notices.append) as (_, outgoing):
        yield outgoing


async def noted(file: Path) -> int:
    """The number that a script has written there."""
    return int(await until(lambda: file.exists() and file.read_text(), holds=lambda text: text and text.endswith("\n")))


def runs(pid: int) -> bool:
    """Whether a process runs. A process that has ended stays listed until its parent waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def known(pid: int) -> bool:
    """Whether a process runs, or has ended and its parent has not waited for it."""
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
async def test_child_processes_of_a_server_end_with_it(tmp_path: Path, deaf: str) -> None:
    file = tmp_path / "child"
    child = f"({deaf}while :; do sleep 0.05; done) </dev/null >/dev/null & echo $! > {file}; "
    async with server(f"{child} exec cat", []):
        pid = await noted(file)
        assert runs(pid)
    await until(lambda: not runs(pid))


async def test_a_gateway_that_is_process_1_leaves_no_child_of_a_server_behind(
    adopting: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_streams, "_PARTING_S", 1.0)  # a busy machine ends the child late
    file = tmp_path / "child"
    async with server(f"sleep 297 & echo $! > {file}; exec cat", []):
        pid = await noted(file)
    assert not known(pid)


async def test_a_server_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "server"
    async with server(f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done", []):
        pid = await noted(file)
        assert runs(pid)
    assert not runs(pid)


@pytest.mark.parametrize("script", ["read line; exec 0<&-; sleep 298", "sleep 298"], ids=["closes it", "reads none"])
async def test_a_server_that_takes_no_more_messages_is_of_no_more_use(script: str) -> None:
    notices = Notices()
    async with server(script, notices) as outgoing:
        sending = asyncio.create_task(_send_for_ever(outgoing))
        async with asyncio.timeout(30):
            await notices.something.wait()
        sending.cancel()
        await asyncio.wait({sending})
    assert notices == ["it accepts no more messages"]


class Notices(list[str]):
    """Why a connection is of no more use."""

    def __init__(self) -> None:
        super().__init__()
        self.something = asyncio.Event()

    def append(self, why: str) -> None:
        super().append(why)
        self.something.set()


async def _send_for_ever(outgoing: Any) -> None:
    while True:
        await outgoing.send(PING)


def source_of(*command: str) -> McpSource:
    return McpSource("files", ToolSourceSettings(command=command), ToolSettings())


async def listed(source: McpSource) -> Sequence[tool_pb2.ToolDescription]:
    """The tools; none where there is no list yet."""
    try:
        return await source.list("", 0.1)
    except Unavailable:
        return ()


async def problem(source: McpSource) -> str:
    """Why there is no list; empty where there is one."""
    try:
        await source.list("", 0.1)
    except Unavailable as error:
        return error.message
    return ""


async def test_a_server_that_hangs_is_started_again_unless_a_call_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_source, "_SILENT_S", 0.0)
    monkeypatch.setattr(mcp_source, "_PAUSE_S", 0.01)
    source = source_of(sys.executable, hostile_mcp.__file__, "silent")
    running = asyncio.create_task(source.run())
    await until(lambda: listed(source))
    call = asyncio.create_task(source.call(CallAttempt("silent", "{}", "key", "acme", 60, INVALID_SPAN)))
    assert await until(lambda: problem(source)) == "files: no list within 100 ms"
    assert not call.done()
    call.cancel()
    await asyncio.wait({call})
    await problem(source)
    assert await until(lambda: listed(source))
    running.cancel()
    await asyncio.wait({running})


async def test_a_server_that_ends_at_once_is_said_to_have_ended() -> None:
    source = source_of("false")
    running = asyncio.create_task(source.run())
    await until(lambda: problem(source), holds=lambda why: why == "files: no list within 100 ms: it has ended")
    running.cancel()
    await asyncio.wait({running})
