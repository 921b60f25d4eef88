"""One mesh file over other projects' servers: vLLM's own OpenAI server, LiteLLM's proxy, and a model of this machine.

Behind LiteLLM stands a simulated provider, whose answers differ from those of vLLM's model.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml

import hedgerow
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.integration.foreign_clients import Installed
from tests.integration.running_up import Up, ports_in_a_row, running_up
from tests.integration.test_llm import provider as vllm_serve
from tests.integration.test_up_mesh_file import provider as simulated
from tests.models import DRAFT
from tests.waiting import until

# The first run fetches packages; two engines load, on a machine that may be busy.
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
KEY, FRANCE = "sk-of-both-servers", "What is the capital of France?"
OF_VLLM, OF_LITELLM = "The capital of France is Paris.", "word word"
STARTS_S = 300.0


@dataclass
class Meshed:
    """A running mesh, its file, and vLLM's process."""

    up: Up
    file: Path
    vllm: asyncio.subprocess.Process

    async def ask(self, model: str) -> hedgerow.Answer:
        async with hedgerow.AsyncClient(self.up.target) as client:
            return await client.ask(FRANCE, model=model, max_tokens=16, temperature=0.0)


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
            "local": {
                "folder": str(DRAFT),
                "options": {"cpu_kvcache_space_gib": 0.25, "enforce_eager": True},
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
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Meshed]:
    folder, port, of_vllm = tmp_path_factory.mktemp("servers"), ports_in_a_row(14), free_port()
    os.environ["SERVERS_KEY"] = KEY
    try:
        with simulated() as (_, behind):
            async with litellm(behind, folder) as proxy, vllm_serve(of_vllm, KEY, folder) as vllm:
                file = folder / "mesh.yaml"
                file.write_text(yaml.safe_dump(mesh_file(f"http://127.0.0.1:{of_vllm}/v1", proxy, port)))
                with running_up(folder / "state", port, file=file) as up:
                    yield Meshed(up, file, vllm)
    finally:
        del os.environ["SERVERS_KEY"]


async def test_two_servers_of_a_model_are_hedged_and_priced(mesh: Meshed) -> None:
    answer = await mesh.ask("answers")
    assert answer.text.startswith((OF_VLLM, OF_LITELLM))
    assert "hedge" in {decision.policy for decision in answer.decisions}
    assert answer.cost_usd > 0


async def test_a_model_of_this_machine_answers_beside_them(mesh: Meshed) -> None:
    assert (await mesh.ask("local")).text == OF_VLLM


async def test_a_model_that_is_added_is_served(mesh: Meshed) -> None:
    text = mesh.file.read_text()
    content = yaml.safe_load(text)
    content["models"]["only"] = {**content["models"]["answers"], "url": content["models"]["answers"]["url"][0]}
    mesh.file.write_text(yaml.safe_dump(content))
    done = "llm-only started, router started again, gateway started again"
    await asyncio.to_thread(mesh.up.wait_for, f"{mesh.file} is in force: {done}")
    assert (await mesh.ask("only")).text == OF_VLLM


async def test_when_one_server_is_killed_the_other_answers(mesh: Meshed) -> None:
    mesh.vllm.kill()
    await mesh.vllm.wait()
    for _ in range(5):
        answer = await mesh.ask("answers")
        assert (answer.text.startswith(OF_LITELLM), answer.finish_reason) == (True, "stop")
