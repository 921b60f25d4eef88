"""An audio service for all tests of this folder, and one for a test that ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from hedgerow.audio.v1 import audio_pb2_grpc
from hedgerow.channel import open_channel
from launcher.processes import free_port
from tests.forked import ServiceProcess
from tests.integration.audio.service import (
    Service,
    spec,
)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {"max_ahead_ms": 600_000, "max_duration_s": 120, "metrics_address": metrics}
    process = ServiceProcess(spec(address, **settings), tmp_path_factory.mktemp("logs"))
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, audio_pb2_grpc.AudioServiceStub(channel), metrics)
    finally:
        assert await process.stop() == 0


@pytest_asyncio.fixture(loop_scope="session")
async def own(tmp_path: Path) -> AsyncIterator[Service]:
    """A service of the test's own."""
    address = f"127.0.0.1:{free_port()}"
    process = ServiceProcess(spec(address), tmp_path)
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, audio_pb2_grpc.AudioServiceStub(channel), "")
    finally:
        await process.stop()
