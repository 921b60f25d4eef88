"""Progress lines while a mesh starts."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from launcher.progress import Progress
from launcher.supervisor import Change
from tests.clock import PausedClock


async def test_without_a_terminal_it_says_again_what_still_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    output, clock = io.StringIO(), PausedClock()
    monkeypatch.setattr("launcher.progress.time", SimpleNamespace(monotonic=clock))
    progress = Progress(Console(file=output), ["llm-fast", "cache", "gateway"])
    progress(Change("cache", "serving"))
    clock.advance(3)
    reminding = asyncio.create_task(progress.remind(every_s=0.01))
    async with asyncio.timeout(10):
        while "still starting" not in output.getvalue():
            await asyncio.sleep(0)
    reminding.cancel()
    assert "still starting after 3 s: llm-fast, gateway\n" in output.getvalue()


async def test_when_all_serve_it_says_no_more() -> None:
    output = io.StringIO()
    progress = Progress(Console(file=output), ["cache"])
    progress(Change("cache", "serving"))
    reminding = asyncio.create_task(progress.remind(every_s=0))
    for _ in range(100):
        await asyncio.sleep(0)
    reminding.cancel()
    assert output.getvalue() == "cache serving\n"
