"""A service process that blocks its event loop says in which function."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from urllib.request import urlopen

from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.waiting import until


def blocked_by(function: str, log: str) -> str:
    """The line that names it; a busy machine may hold up other functions before."""
    return next((line for line in log.splitlines() if "event loop was blocked" in line and function in line), "")


async def test_a_service_names_the_function_that_blocks_it_in_its_log_and_its_metrics(tmp_path: Path) -> None:
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "HEDGEROW_VISION_ADDRESS": address,
        "HEDGEROW_VISION_METRICS_ADDRESS": metrics,
        "HEDGEROW_VISION_MODELS_DIR": str(tmp_path),
    }
    process = ServiceProcess(ServiceSpec("vision", "tests.integration.blocking_service", address, settings), tmp_path)
    try:
        line = await until(lambda: blocked_by("reads_a_slow_disk", process.tail()))
        assert "WARNING vision" in line
        page = await asyncio.to_thread(lambda: urlopen(f"http://{metrics}/metrics", timeout=20).read().decode())
        counted = 'hedgerow_loop_blocked_seconds_count{function="__main__.reads_a_slow_disk"} '
        assert any(float(line.removeprefix(counted)) >= 1 for line in page.splitlines() if line.startswith(counted))
    finally:
        process.signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
