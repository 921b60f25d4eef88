"""Logs of services, which grow for as long as they run."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from launcher import processes
from launcher.processes import ServiceProcess, ServiceSpec
from tests.waiting import until


def process(folder: Path, *command: str) -> ServiceProcess:
    return ServiceProcess(ServiceSpec("one", "", "127.0.0.1:1", command=command, folder=folder), folder)


async def test_the_end_of_a_long_log_is_read_without_the_rest(tmp_path: Path) -> None:
    one = process(tmp_path, "true")
    await one.wait()
    os.truncate(one.log, 16 * 2**20)
    with one.log.open("ab") as log:
        log.write(b"\n" + b"".join(b"line %d\n" % number for number in range(20)))
    tracemalloc.start()
    try:
        said = one.tail(2)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert said == "line 18\nline 19"
    assert most_bytes < 2**20


async def test_a_log_that_grows_for_weeks_takes_no_more_than_its_bound_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES", 1_000, raising=False)
    one = process(tmp_path, "sh", "-c", "head -c 1001 /dev/zero; read _ < go; echo more")
    os.mkfifo(go := tmp_path / "go")
    waiting = asyncio.create_task(one.wait())
    earlier = tmp_path / "one.log.1"
    await until(lambda: earlier.exists() and one.log.stat().st_size == 0)
    await asyncio.to_thread(go.write_text, "go\n")
    assert await waiting == 0
    assert one.log.read_text() == "more\n"
    assert earlier.read_bytes() == bytes(1_001)
    assert earlier.stat().st_mode & 0o777 == 0o600


async def test_a_log_that_cannot_be_rotated_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LOG_BYTES", 1_000, raising=False)
    (tmp_path / "one.log.1").mkdir()
    one = process(tmp_path, "sh", "-c", "head -c 1001 /dev/zero; touch said; exec sleep 60")
    waiting = asyncio.create_task(one.wait())
    await until(lambda: (tmp_path / "said").exists() and one.log.stat().st_size == 0)
    assert not waiting.done()
    await one.stop()
    await waiting
