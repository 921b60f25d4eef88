"""vLLM's own server with the demo model, and llm services for which it is the provider, by each of its APIs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2_grpc
from launcher.processes import ServiceSpec, free_port
from services.llm.config import VllmSettings
from services.llm.vllm.args import environment
from tests.forked import ServiceProcess
from tests.integration.vllm_engine.service import START_S, Service
from tests.models import MODELS
from tests.waiting import until

KEY = "sk-of-both-servers"


@dataclass(frozen=True)
class VllmServer:
    """`vllm serve`, which asks for `KEY`; its model is `demo`."""

    process: asyncio.subprocess.Process
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def vllm_server(folder: Path) -> AsyncIterator[VllmServer]:
    """Ready."""
    port = free_port()
    terse = {"backend": "guidance", "disable_any_whitespace": True}  # else this model writes nothing else
    options = {
        "model": MODELS / "demo-llm",
        "served-model-name": "demo",
        "host": "127.0.0.1",
        "port": port,
        "api-key": KEY,
        "max-model-len": 1024,
        "kv-cache-memory-bytes": 2**28,
        "tool-call-parser": "hermes",
        "structured-outputs-config": json.dumps(terse),
    }
    flags = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags)
    variables = {**os.environ, **environment(VllmSettings(model=str(MODELS / "demo-llm")))}
    with (folder / "provider.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, "--enforce-eager", "--enable-auto-tool-choice", env=variables, stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until(lambda: _answers(client), START_S, every_s=0.5)
        yield VllmServer(process, port)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _answers(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/health")).is_success
    except httpx.TransportError:
        return False


def openai_service(server: VllmServer, folder: Path) -> AbstractAsyncContextManager[Service]:
    able = json.dumps(["tools", "logprobs", "logit_bias", "prefix"])
    return _remote_service("openai", server, folder, API_KEY=KEY, FEATURES=able)


def anthropic_service(server: VllmServer, folder: Path) -> AbstractAsyncContextManager[Service]:
    (folder / "key").write_text(KEY)
    bearer = json.dumps({"authorization": f"Bearer {KEY}"})  # which is what vLLM's server looks at
    own = {"API_KEY_FILE": str(folder / "key"), "EXTRA_HEADERS": bearer, "CONTEXT_TOKENS": "1024"}
    return _remote_service("anthropic", server, folder, **own)


@asynccontextmanager
async def _remote_service(engine: str, server: VllmServer, folder: Path, **own: str) -> AsyncIterator[Service]:
    address = f"127.0.0.1:{free_port()}"
    own |= {"BASE_URL": server.url, "MODEL": "demo"}
    settings = {"ADDRESS": address, "ENGINE": engine}
    settings |= {f"{engine.upper()}__{name}": value for name, value in own.items()}
    prefixed = {f"HEDGEROW_LLM_{name}": value for name, value in settings.items()}
    process = ServiceProcess(ServiceSpec(engine, "services.llm", address, prefixed), folder)
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, llm_pb2_grpc.LLMServiceStub(channel), "")
    finally:
        await process.stop()
