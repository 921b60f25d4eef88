"""One engine for all tests of this folder: it takes tens of seconds to start."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2_grpc
from launcher.processes import free_port
from tests.forked import ServiceProcess
from tests.integration.vllm_engine.service import (
    START_S,
    Service,
    meeting_in,
    spec,
)
from tests.models import MODELS


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """It speculates with the draft model. test_with_a_dead_engine.py, the last file, ends it."""
    draft = {"method": "draft_model", "model": str(MODELS / "demo-llm-draft"), "num_speculative_tokens": 4}
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {
        "METRICS_ADDRESS": metrics,
        "VLLM__SPECULATIVE_CONFIG": json.dumps(draft),
        "VLLM__TOOL_PARSER": "hermes",
    }
    with TemporaryDirectory() as scratch:
        llm = meeting_in(scratch, spec("llm", address, **settings))
        process = ServiceProcess(llm, tmp_path_factory.mktemp("logs"))
        try:
            await process.wait_serving(START_S)
            async with open_channel(address) as channel:
                yield Service(process, llm_pb2_grpc.LLMServiceStub(channel), metrics)
        finally:
            await process.stop(30)
