"""A service that gets SIGTERM while it loads."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.waiting import until


async def test_a_loading_service_stopped_twice_clears_up_and_exits_with_0(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {"HEDGEROW_VISION_ADDRESS": address, "HEDGEROW_VISION_MODELS_DIR": str(tmp_path)}
    process = ServiceProcess(ServiceSpec("vision", "tests.integration.loading_service", address, settings), tmp_path)
    try:
        await until(lambda: "loading" in process.tail())
        process.signal(signal.SIGTERM)
        await until(lambda: "clearing up" in process.tail())
        process.signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert "cleared up" in process.tail()
    finally:
        process.signal(signal.SIGKILL)
        await process.wait()
