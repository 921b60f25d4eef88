"""What integration tests share: a gateway, a cache, a Redis of a test's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI

from hedgerow import _outgoing
from hedgerow.cache.v1 import cache_pb2_grpc
from hedgerow.channel import open_channel
from tests.certificates import Certificates
from tests.conftest import Start
from tests.integration.cache_process import Running, StartCache
from tests.integration.http_gateway import HttpGateway, start_http_gateway
from tests.integration.scripted_llm import ScriptedLlm, end, scripted_llm, words
from tests.redis import RedisProcess, redis_server


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the cache's model is converted, which takes seconds: once for all tests, and for all workers."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return tmp_path_factory.getbasetemp().parent / "model"
    return tmp_path_factory.mktemp("model")


@pytest.fixture
async def start_cache(start: Start, model_cache: Path) -> AsyncIterator[StartCache]:
    """Starts a cache service and connects to it."""
    async with AsyncExitStack() as stack:

        async def start_cache(**settings: object) -> Running:
            process = await start("cache", **{"model_cache": model_cache, **settings})
            channel = await stack.enter_async_context(open_channel(process.spec.address))
            return process, cache_pb2_grpc.CacheServiceStub(channel)

        yield start_cache


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Certificates of an authority of the test's own."""
    return Certificates(tmp_path / "certs")


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisProcess]:
    """A real Redis of the test's own."""
    async with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
async def llm() -> AsyncIterator[ScriptedLlm]:
    """A scripted model of the test's own, which knows the capital of France."""
    async with scripted_llm() as scripted:
        scripted.script = [*words("Paris", "."), end()]
        yield scripted


@pytest.fixture
async def gateway(start: Start, llm: ScriptedLlm) -> HttpGateway:
    """A real gateway of the test's own, which serves HTTP before that model."""
    return await start_http_gateway(start, llm)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK waits 20 s past a budget for its answer, not 1 s: a busy machine is no gateway that never ends."""
    monkeypatch.setattr(_outgoing, "GRACE_S", 20.0)


@pytest.fixture
async def http(gateway: HttpGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as connected:
        yield connected


@pytest.fixture
async def openai_(gateway: HttpGateway) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client, which refuses what is not as its types have it."""
    async with AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, _strict_response_validation=True
    ) as connected:
        yield connected
