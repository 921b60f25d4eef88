"""MCP servers that are commands: how they end, and how they are ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.gateway.config import ToolSettings
from services.gateway.tools import mcp_streams
from tests.waiting import until


@pytest.fixture(autouse=True)
def _short_partings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_streams, "_PARTING_S", 0.1)


@asynccontextmanager
async def server(script: str, told: list[str]) -> AsyncIterator[Any]:
    """A server that is a script for `sh`; gives what takes messages to it."""
    async with mcp_streams.command(["sh", "-c", script], {}, ToolSettings(), told.append) as (_, outgoing):
        yield outgoing


async def noted(file: Path) -> int:
    """The number that a script has written there."""
    return int(await until(lambda: file.exists() and file.read_text(), holds=lambda text: text and text.endswith("\n")))


def runs(pid: int) -> bool:
    """Whether a process runs. One that has ended stays known where nobody waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
async def test_what_a_server_has_started_ends_with_it(tmp_path: Path, deaf: str) -> None:
    file = tmp_path / "child"
    child = f"({deaf}while :; do sleep 0.05; done) </dev/null >/dev/null & echo $! > {file}; "
    async with server(f"{child} exec cat", []):
        pid = await noted(file)
        assert runs(pid)
    await until(lambda: not runs(pid))


async def test_a_server_that_does_not_end_when_it_is_told_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "server"
    async with server(f"trap '' TERM; echo $$ > {file}; while :; do sleep 0.05; done", []):
        pid = await noted(file)
        assert runs(pid)
    assert not runs(pid)
