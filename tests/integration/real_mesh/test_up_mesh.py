"""`hedgerow up --mesh` with the real services, the real Envoy and the real Redis.

Simulated models show the use of a second replica.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

import hedgerow
from launcher.mesh import Mesh
from launcher.processes import ServiceSpec, check_health, free_ports
from launcher.replicas import ReplicatedMesh, ports_from
from launcher.supervisor import Supervisor
from tests.forked import forking_meshes
from tests.integration.command import cli, run
from tests.integration.running_up import Up
from tests.models import FIXTURES
from tests.waiting import until

# Two engines load, on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)
WITHIN_S = 30  # until every process knows a change of the topology, or of a process


def mesh_status(up: Up, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The output of `hedgerow mesh status --json`, once it is as wanted. Exit code 0: all replicas are healthy."""
    ends_at = time.monotonic() + WITHIN_S
    while True:
        code, out = cli("mesh", "status", "--json", "--state-dir", str(up.state_dir))
        said: dict[str, Any] = json.loads(out)
        if wanted(said):
            assert (code, said["ok"]) == ((0, True) if said["problems"] == [] else (1, False))
            return said
        assert time.monotonic() < ends_at, said


def well(said: Mapping[str, Any]) -> bool:
    return bool(said["ok"])


def test_every_service_serves_and_has_taken_the_configuration(up: Up) -> None:
    code, out = cli("status", "--json", "--state-dir", str(up.state_dir))
    services = json.loads(out)["services"]
    assert (code, {service["health"] for service in services}) == (0, {"SERVING"})
    assert {"control", "redis", "cache-1", "gateway-1", "vision", "envoy"} <= {service["name"] for service in services}
    said = mesh_status(up, well)
    assert {client["node"] for client in said["clients"]} == {"gateway-1", "envoy"}
    for client in said["clients"]:
        for held in client["subscriptions"]:
            assert held["acked_version"] == held["sent_version"] != ""


def test_a_question_that_comes_in_through_envoy_is_answered_with_its_waterfall(up: Up) -> None:
    code, out = cli("ask", "--gateway", up.target, "What is the capital of Norway?")
    assert code == 0
    assert out.splitlines()[0] == "The capital of Norway is Oslo."
    assert any(line.startswith("llm ") for line in out.splitlines())
    assert "kill -9 " + str(up.pid("llm-quality-1")) in "\n".join(up.lines)


# Two of each, with simulated models and certificates.


@dataclass(frozen=True)
class Pairs:
    """A running mesh and its state folder."""

    mesh: Mesh
    state_dir: Path

    def service(self, name: str) -> Supervisor:
        return next(service for service in self.mesh.services if service.spec.name == name)

    @property
    def authority(self) -> hedgerow.Tls:
        """The authority that a caller trusts."""
        return hedgerow.Tls(self.state_dir / "certs" / "ca.crt")

    def client(self, name: str = "envoy") -> hedgerow.AsyncClient:
        """The SDK, which asks that service."""
        return hedgerow.AsyncClient(self.service(name).spec.address, tls=self.authority)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pairs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pairs]:
    state_dir: Path = tmp_path_factory.mktemp("pairs")
    names = ports_from(0, 2)
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    planned = ReplicatedMesh(ports, state_dir, FIXTURES, tls=True)
    with forking_meshes():
        async with Mesh(list(map(simulated, planned.specs())), state_dir, prepare=planned.write_files) as mesh:
            yield Pairs(mesh, state_dir)


def simulated(spec: ServiceSpec) -> ServiceSpec:
    """With a simulated model in the place of a language model."""
    if not spec.name.startswith("llm-"):
        return spec
    own = {name: spec.environment.get(f"HEDGEROW_LLM_{name}", "") for name in ("ADDRESS", "TLS_DIR")}
    environment = {f"HEDGEROW_SIMULATED_LLM_{name}": value for name, value in own.items()}
    return replace(spec, module="bench.simulated_llm", environment=environment)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_service_authenticates_and_a_caller_without_a_certificate_reaches_envoy_alone(pairs: Pairs) -> None:
    certificates = pairs.state_dir / "certs"
    known = ("--state-dir", str(pairs.state_dir), "--tls-dir", str(certificates / "operator"))
    for command in (("status",), ("mesh", "status")):
        async with asyncio.timeout(WITHIN_S):  # the control plane may not have seen yet what we have
            while (await run(*command, *known))[0]:
                pass
    async with pairs.client() as client:
        assert (await client.ask("Who are you?")).finish_reason == "stop"
        (pairs.state_dir / "notes.md").write_text("The gateway listens on port 50050.\n")
        code, out, err = await run("collection", "put", "notes", str(pairs.state_dir / "notes.md"), *known)
        assert code == 0, out + err
        answer = await client.ask("Which port?", mesh_tools=["search_notes"])
        assert [each.tool for each in answer.citations] == ["search_notes"], (
            "the gateway accepts the cache's certificate"
        )
    trusting = httpx.AsyncClient(verify=ssl.create_default_context(cafile=certificates / "ca.crt"))
    base_url = f"https://localhost:{pairs.service('envoy').spec.address.rpartition(':')[2]}/v1"
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, http_client=trusting) as client:
        assert "demo-llm" in [model.id async for model in client.models.list()]
        asked = await client.chat.completions.create(model="quality", messages=[{"role": "user", "content": "Who?"}])
        assert asked.choices[0].finish_reason == "stop"
    async with pairs.client("gateway-1") as client:
        with pytest.raises(hedgerow.Unavailable):
            await client.ask("Who are you?")
    assert await check_health(pairs.service("cache-1").spec.address, 1) == "UNREACHABLE"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", ["llm-quality-1", "gateway-1"])
async def test_killing_one_costs_no_answer(pairs: Pairs, name: str) -> None:
    """The other services: tests/fault/test_through_the_mesh.py."""
    victim = pairs.service(name)
    killed = victim.process
    assert killed
    async with pairs.client() as client:
        assert (await client.ask("Are you there?", tier="quality", cache="bypass")).text
        killed.signal(signal.SIGKILL)
        answers = [await client.ask(f"Number {n}?", tier="quality", cache="bypass") for n in range(20)]
        assert [answer.finish_reason for answer in answers] == ["stop"] * 20
        await until(lambda: victim.process is not killed, WITHIN_S)
        await until(lambda: check_health(victim.spec.address, 1, victim.spec.tls), WITHIN_S, holds="SERVING".__eq__)
        assert (await client.ask("And now?", tier="quality", cache="bypass")).finish_reason == "stop"
