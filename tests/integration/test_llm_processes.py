"""The processes of an llm service with vLLM: how they start, and how they end."""

from __future__ import annotations

import signal
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launcher.processes import check_health, free_port
from tests.forked import ServiceProcess
from tests.integration.vllm_engine.service import (
    START_S,
    family,
    gone,
    meeting_in,
    spec,
)
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="function"), pytest.mark.timeout(2 * START_S)]


async def test_a_wrong_engine_setting_stops_the_start_and_is_named(tmp_path: Path) -> None:
    process = ServiceProcess(spec("wrong", f"127.0.0.1:{free_port()}", VLLM__MODEL="/no/such/model"), tmp_path)
    assert await process.wait() == 2
    assert "vllm.model" in process.tail(3)
    assert "loading" not in process.tail()  # as it says before it imports vLLM


async def test_sigterm_while_loading_ends_everything(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with TemporaryDirectory() as scratch:
        sockets = f"{scratch}/hedgerow-vllm-*"  # where its processes meet
        process = ServiceProcess(meeting_in(scratch, spec("loading", address)), tmp_path)
        await until(lambda: has_engine(process), 120, every_s=0.1)
        assert glob(sockets)
        started = family(process)
        assert await check_health(address, 20) == "NOT_SERVING"
        process.signal(signal.SIGTERM)
        assert await process.wait() == 0
        await until(lambda: gone(started), 30)
        assert not glob(sockets)


async def has_engine(process: ServiceProcess) -> bool:
    return len(family(process)) > 1
