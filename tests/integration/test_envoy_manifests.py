"""What the manifests give Envoy works on a real one: its bootstraps, and the commands in its container as written."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import envoy
from launcher.parent_death_signal import killed_with_parent
from launcher.processes import free_port

REPOSITORY = Path(__file__).parents[2]
WAIT_S = 30


def in_kubernetes() -> dict[str, Any]:
    documents = yaml.safe_load_all((REPOSITORY / "deploy/k8s/base/edge.yaml").read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


def in_compose() -> list[str]:
    services = yaml.safe_load((REPOSITORY / "docker-compose.mesh.yml").read_text())["services"]
    kind, *command = services["edge"]["healthcheck"]["test"]
    assert kind == "CMD"
    return list(command)


PROBES = {"kubernetes": in_kubernetes()["readinessProbe"]["exec"]["command"], "compose": in_compose()}
each_probe = pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES)


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


@each_probe
async def test_an_envoy_that_serves_is_ready(admin: int, probe: list[str]) -> None:
    assert (await run(probe, admin)).returncode == 0


@each_probe
async def test_an_envoy_that_is_not_there_is_not_ready(probe: list[str]) -> None:
    assert (await run(probe, free_port())).returncode != 0


@each_probe
async def test_an_envoy_that_was_told_to_fail_is_not_ready(admin: int, probe: list[str]) -> None:
    assert await envoy.drain(f"127.0.0.1:{admin}", WAIT_S)
    assert (await run(probe, admin)).returncode != 0


@pytest.mark.parametrize("folder", ["base", "overlays/two-regions"])
async def test_envoy_takes_the_bootstrap(folder: str, tmp_path: Path) -> None:
    for source in ("base", folder):  # what an overlay does not say, the base does
        for file in (REPOSITORY / "deploy/k8s" / source / "envoy").iterdir():
            (tmp_path / file.name).write_text(file.read_text())
    process = await asyncio.create_subprocess_exec(
        envoy.binary(), "--mode", "validate", "--config-path", "envoy.yaml", cwd=tmp_path, stdout=PIPE, stderr=PIPE
    )
    _, said = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 0, said.decode()


async def test_before_it_is_stopped_envoy_drains_and_waits_no_longer_than_for_answers_in_flight(admin: int) -> None:
    command = in_kubernetes()["lifecycle"]["preStop"]["exec"]["command"]
    assert (await run(command, admin)).returncode == 0
    ready = await run(PROBES["kubernetes"], admin)
    assert ready.returncode != 0, "it takes no more"
