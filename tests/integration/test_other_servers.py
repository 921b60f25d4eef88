"""One mesh file over other projects' servers: vLLM's own OpenAI server and LiteLLM's proxy.

Behind LiteLLM stands a simulated provider, whose answers differ from those of vLLM's model.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import jsonschema
import psutil
import pytest
import pytest_asyncio
import yaml

import hedgerow
from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.integration.foreign_clients import Installed
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.simulated_provider import provider as simulated
from tests.integration.vllm_engine.service import (
    CITY,
    FRANCE,
    STORY,
    WITHOUT_END,
    Service,
    ask,
    begun,
    called,
    gone,
    offering,
)
from tests.integration.vllm_server import KEY, VllmServer, anthropic_service, openai_service, vllm_server
from tests.waiting import until

# The first run fetches packages; an engine loads, on a machine that may be busy.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
OF_VLLM, OF_LITELLM = "The capital of France is Paris.", "word word"
STARTS_S = 300.0


@dataclass
class Meshed:
    """A running mesh."""

    up: Up

    async def ask(self) -> hedgerow.Answer:
        async with hedgerow.AsyncClient(self.up.target) as client:
            return await client.ask(FRANCE, model="answers", max_tokens=16, temperature=0.0)


def mesh_file(vllm: str, litellm: str, port: int) -> dict[str, object]:
    """As docs/proxy.md has it, but for `tied`: both servers are asked at once, whichever is faster."""
    return {
        "models": {
            "answers": {
                "url": [vllm, litellm],
                "model": "demo",
                "key_env": "SERVERS_KEY",
                "prices": {"input": 1, "output": 2},
            },
        },
        "gateway": {"address": port, "http": port + 13, "settings": {"hedge": {"mode": "tied", "max_share": 1}}},
    }


@asynccontextmanager
async def litellm(behind: str, folder: Path) -> AsyncIterator[str]:
    """LiteLLM's proxy in front of the URL `behind`, with packages of its own; its URL."""
    of_model = {"model": "openai/simulated", "api_base": behind, "api_key": "none"}
    config, port = folder / "litellm.yaml", free_port()
    config.write_text(
        yaml.safe_dump(
            {
                "model_list": [{"model_name": "demo", "litellm_params": of_model}],
                "litellm_settings": {"telemetry": False, "drop_params": True},
                "general_settings": {"master_key": KEY},
            }
        )
    )
    executable = await asyncio.to_thread(lambda: Installed().python("litellm") / "litellm")
    command = (str(executable), "--config", str(config), "--host", "127.0.0.1", "--port", str(port))
    # It has no way to the internet: prices come with the package.
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": ""}
    process = ServiceProcess(ServiceSpec("litellm", "", f"127.0.0.1:{port}", environment, command), folder)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:

            async def lives() -> bool:
                assert process.exit_code is None, process.tail()
                try:
                    return (await client.get("/health/liveliness")).is_success
                except httpx.TransportError:
                    return False

            await until(lives, STARTS_S, every_s=0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await process.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[VllmServer]:
    async with vllm_server(tmp_path_factory.mktemp("vllm")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Meshed]:
    folder, port = tmp_path_factory.mktemp("servers"), ports_in_a_row(14)
    os.environ["SERVERS_KEY"] = KEY
    try:
        with simulated() as (_, behind):
            async with litellm(behind, folder) as proxy:
                file = folder / "mesh.yaml"
                file.write_text(yaml.safe_dump(mesh_file(server.url, proxy, port)))
                with running_up(folder / "state", port, file=file) as up:
                    yield Meshed(up)
    finally:
        del os.environ["SERVERS_KEY"]


async def answers_like_our_own(service: Service) -> None:
    """Texts, counts, limits, tools and refusals are those of an engine of our own."""
    text, finish = await service.ask(FRANCE)
    assert (text, finish.reason) == (OF_VLLM, chat_pb2.FINISH_REASON_STOP)
    counted = await service.stub.CountTokens(llm_pb2.CountTokensRequest(messages=ask(FRANCE).messages), timeout=30)
    assert counted.tokens == finish.usage.prompt_tokens
    _, finish = await service.ask(STORY, max_tokens=5)
    assert (finish.reason, finish.usage.completion_tokens) == (chat_pb2.FINISH_REASON_LENGTH, 5)
    ((name, arguments),) = await called(service, offering(chat_pb2.ToolChoice(name="weather")))
    assert name == "weather"
    jsonschema.validate(arguments, CITY)
    assert (await service.refusal(ask("hello " * 2000)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert KEY not in service.process.log.read_text()


async def test_vllms_server_is_served_like_an_engine_of_our_own(server: VllmServer, tmp_path: Path) -> None:
    async with openai_service(server, tmp_path) as service:
        await answers_like_our_own(service)
        text, _ = await service.answer(begun("The capital of France"))
        assert text == " is Paris."
        assert "1024 tokens" in (await service.refusal(ask("hello " * 2000)))[2]
        replies = [reply async for reply in service.stub.Generate(ask(FRANCE, top_logprobs=1), timeout=60)]
        tokens = "".join(logprob.token for reply in replies for logprob in reply.logprobs)
        assert tokens.startswith(OF_VLLM)


async def test_the_servers_messages_api_answers_like_our_own(server: VllmServer, tmp_path: Path) -> None:
    async with anthropic_service(server, tmp_path) as service:
        await answers_like_our_own(service)


async def test_two_servers_of_a_model_are_hedged_and_priced(mesh: Meshed) -> None:
    answer = await mesh.ask()
    assert answer.text.startswith((OF_VLLM, OF_LITELLM))
    assert "hedge" in {decision.policy for decision in answer.decisions}
    assert answer.cost_usd > 0


async def test_when_a_server_is_killed_its_answers_break_off_and_the_mesh_asks_the_other(
    mesh: Meshed, server: VllmServer, tmp_path: Path
) -> None:
    async with openai_service(server, tmp_path) as service:
        replies = aiter(service.stub.Generate(ask(STORY, max_tokens=500, logit_bias=[WITHOUT_END])))
        await anext(replies)
        started = psutil.Process(server.process.pid).children(recursive=True)
        assert [child for child in started if "EngineCore" in " ".join(child.cmdline())]
        server.process.kill()
        await server.process.wait()
        *_, last = [reply async for reply in replies]
        assert last.finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.ask(FRANCE)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    for _ in range(5):
        answer = await mesh.ask()
        assert (answer.text.startswith(OF_LITELLM), answer.finish_reason) == (True, "stop")
    # Nothing but our plugin, which this server loads as the llm service does, ends the engine of a killed server.
    await until(lambda: gone(started), 60)
