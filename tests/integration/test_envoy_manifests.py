"""What compose and the Helm chart give Envoy works on a real one: its bootstraps, and the commands in its container."""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from launcher import envoy
from launcher.parent_death_signal import killed_with_parent
from launcher.processes import free_port
from tests.waiting import until

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 30
CHART_FILES = REPOSITORY / "deploy/helm/hedgerow/files/envoy"


def in_compose() -> list[str]:
    services = yaml.safe_load((REPOSITORY / "docker-compose.mesh.yml").read_text())["services"]
    kind, *command = services["edge"]["healthcheck"]["test"]
    assert kind == "CMD"
    return list(command)


PROBE = in_compose()


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[int]:
    """The port of the admin page of an Envoy that serves nothing else."""
    port = free_port()
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    (tmp_path / "envoy.yaml").write_text(json.dumps({"admin": {"address": address}}))
    process = await asyncio.create_subprocess_exec(
        *killed_with_parent(envoy.command(tmp_path / "envoy.yaml")), stderr=PIPE
    )
    try:
        await envoy.wait_ready(f"127.0.0.1:{port}", WAIT_S)
        yield port
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def run(command: list[str], port: int) -> Process:
    """Run what is written for Envoy's usual admin port."""
    assert "9901" in " ".join(command)
    here = [part.replace("9901", str(port)) for part in command]
    process = await asyncio.create_subprocess_exec(*here, stdout=PIPE, stderr=PIPE)
    await asyncio.wait_for(process.communicate(), WAIT_S)
    return process


async def test_an_envoy_that_serves_is_ready(admin: int) -> None:
    assert (await run(PROBE, admin)).returncode == 0


async def test_an_envoy_that_is_not_there_is_not_ready() -> None:
    assert (await run(PROBE, free_port())).returncode != 0


async def test_an_envoy_whose_health_check_is_set_to_fail_is_not_ready(admin: int) -> None:
    assert await envoy.drain(f"127.0.0.1:{admin}", WAIT_S)
    assert (await run(PROBE, admin)).returncode != 0


@pytest.mark.parametrize("folder", ["envoy", "helm/hedgerow/files/envoy/mtls", "helm/hedgerow/files/envoy/plaintext"])
async def test_envoy_takes_the_bootstrap_and_a_region_over_it(folder: str, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "deploy" / folder, tmp_path, dirs_exist_ok=True)
    region = ("--config-yaml", '{"node":{"locality":{"region":"west"}}}')
    process = await asyncio.create_subprocess_exec(
        *(envoy.binary(), "--mode", "validate", "--config-path", "envoy.yaml", *region),
        cwd=tmp_path,
        stdout=PIPE,
        stderr=PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0, said.decode()


async def test_before_it_is_stopped_envoy_drains_and_waits_no_longer_than_for_answers_in_flight(admin: int) -> None:
    script = (CHART_FILES / "drain.sh").read_text()
    assert (await run(["bash", "-c", script], admin)).returncode == 0
    assert (await run(PROBE, admin)).returncode != 0, "a draining Envoy is not ready"


async def test_the_region_is_envoys_own(tmp_path: Path) -> None:
    port = free_port()
    content = yaml.safe_load((CHART_FILES / "plaintext/envoy.yaml").read_text())
    content["admin"]["address"]["socket_address"]["port_value"] = port
    (tmp_path / "envoy.yaml").write_text(yaml.safe_dump(content))
    region = ("--config-yaml", '{"node":{"locality":{"region":"west"}}}')
    process = await asyncio.create_subprocess_exec(
        *killed_with_parent([*envoy.command(tmp_path / "envoy.yaml"), *region]), stderr=PIPE
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20) as page:
            bootstrap = await until(lambda: _bootstrap(page), WAIT_S)
        assert bootstrap["node"]["locality"] == {"region": "west"}
        assert bootstrap["node"]["id"] == "edge"
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def _bootstrap(page: httpx.AsyncClient) -> dict[str, Any]:
    with suppress(httpx.TransportError):
        dump = (await page.get("/config_dump", params={"mask": "bootstrap"})).json()
        return dict(dump["configs"][0]["bootstrap"])
    return {}
