"""One engine for all tests of this folder: it takes tens of seconds to start."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import psutil
import pytest
import pytest_asyncio

from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2_grpc
from launcher.processes import free_port
from tests.forked import ServiceProcess
from tests.integration.vllm_engine.service import (
    START_S,
    Service,
    family,
    gone,
    spec,
)
from tests.models import MODELS
from tests.waiting import until


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """It speculates with the draft model. In the end the service is killed, and must leave no engine behind: nothing
    watches over it then but the engine's own plugin."""
    draft = {"method": "draft_model", "model": str(MODELS / "demo-llm-draft"), "num_speculative_tokens": 4}
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "METRICS_ADDRESS": metrics,
        "VLLM__SPECULATIVE_CONFIG": json.dumps(draft),
        "VLLM__TOOL_PARSER": "hermes",
    }
    process = ServiceProcess(spec("llm", address, **settings), tmp_path_factory.mktemp("logs"))
    try:
        await process.wait_serving(START_S)
        async with open_channel(address) as channel:
            yield Service(process, llm_pb2_grpc.LLMServiceStub(channel), metrics)
        started = family(process)
        assert len(started) > 1
        psutil.Process(process.pid).kill()
        await until(lambda: gone(started), 30)
    finally:
        await process.stop(30)
