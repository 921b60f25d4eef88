"""Services prove their identities to each other: mutual TLS between real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from hedgerow.router.v1 import router_pb2, router_pb2_grpc
from launcher.processes import ServiceSpec, free_port
from launcher.replicas import xds_bootstrap
from services.runtime.rpc.reloading_channel import ReloadingChannel
from services.runtime.security import tls
from tests import listings
from tests.certificates import Certificates, mutual
from tests.forked import ServiceProcess, refused_start
from tests.integration.command import run
from tests.waiting import until

MODELS = json.dumps([{"name": "m", "tier": "fast", "context_tokens": 1000}])
WAIT_S = 30


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as entered:
        yield entered


@pytest.fixture
async def router(certificates: Certificates, stack: AsyncExitStack, tmp_path: Path) -> ServiceProcess:
    """A router with a certificate of its own."""
    return await mutual(stack, certificates, tmp_path, "router", models=MODELS)


def stub(channel: grpc.aio.Channel) -> Any:
    return router_pb2_grpc.RouterServiceStub(channel)


async def test_the_metrics_port_reports_readiness_to_a_probe_without_a_certificate(
    certificates: Certificates, stack: AsyncExitStack, tmp_path: Path
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    router = await mutual(
        stack, certificates, tmp_path, "router", models=MODELS, metrics_address=metrics, lame_duck_ms="20000"
    )
    async with httpx.AsyncClient(base_url=f"http://{metrics}", timeout=20) as probe:

        async def status(page: str) -> int:
            return (await probe.get(page)).status_code

        assert (await status("/readyz"), await status("/livez")) == (200, 200)
        router.signal(signal.SIGTERM)
        await until(lambda: status("/readyz"), WAIT_S, holds=lambda code: code == 503)
        assert await status("/livez") == 200
        router.signal(signal.SIGKILL)  # and not wait for the rest of the time


async def test_channels_are_renewed_with_the_certificate_and_streams_go_on(
    certificates: Certificates, router: ServiceProcess
) -> None:
    folder = certificates.folder / "gateway"
    async with tls.dial(folder) as dial, dial(router.spec.address, "router") as channel:
        assert isinstance(channel, ReloadingChannel)
        first = channel.current
        tables = stub(channel).WatchTable(router_pb2.WatchTableRequest())
        await tables.read()
        certificates.renew("gateway")
        await until(lambda: channel.current is not first, WAIT_S)
        await stub(channel).ListModels(router_pb2.ListModelsRequest(), timeout=20)
        assert not tables.done()
        assert first.get_state() is not grpc.ChannelConnectivity.SHUTDOWN
        tables.cancel()
        await until(lambda: first.get_state() is grpc.ChannelConnectivity.SHUTDOWN, WAIT_S)


def probe(*arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "services.runtime.probe", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


async def test_a_containers_probe_asks_with_the_services_own_certificate(
    certificates: Certificates, router: ServiceProcess
) -> None:
    folder, address = str(certificates.folder / "router"), router.spec.address
    assert await asyncio.to_thread(probe, address, HEDGEROW_ROUTER_TLS_DIR=folder) == (0, "SERVING\n")
    operator = str(certificates.folder / "operator")
    given = ("--tls-dir", operator, "--service", "router")
    assert await asyncio.to_thread(probe, address, *given) == (0, "SERVING\n")
    assert await asyncio.to_thread(probe, address, "--tls-dir", operator) == (0, "SERVING\n")  # 127.0.0.1 is in it
    assert await asyncio.to_thread(probe, address) == (1, "UNAVAILABLE\n")


async def test_status_asks_as_the_operator(certificates: Certificates, router: ServiceProcess, tmp_path: Path) -> None:
    where = ("status", "--json", "--state-dir", str(tmp_path))
    with listings.running(tmp_path, [{"name": "router", "address": router.spec.address}]):
        code, out, _ = await run(*where, "--tls-dir", str(certificates.folder / "operator"))
        assert (code, json.loads(out)["services"][0]["health"]) == (0, "SERVING")
        code, out, _ = await run(*where)
        assert (code, json.loads(out)["services"][0]["health"]) == (1, "UNREACHABLE")


@pytest.mark.parametrize(
    ("identity", "why"), [("nobody", "No such file"), ("operator", "a service's certificate, got operator")]
)
async def test_a_service_without_a_certificate_of_a_service_does_not_start(
    certificates: Certificates, identity: str, why: str
) -> None:
    ended = await refused_start("router", models=MODELS, tls_dir=certificates.folder / identity)
    assert ended.code == 2
    assert why in ended.err


@asynccontextmanager
async def calling(certificates: Certificates, control: str, target: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that calls a router at `target` as the gateway, until its input is closed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.xds_caller", target, str(certificates.folder / "gateway")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={
            **os.environ,
            "GRPC_XDS_BOOTSTRAP_CONFIG": xds_bootstrap(control, "gateway-test", certificates.folder / "gateway"),
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate(b"")


async def test_over_xds_a_service_with_another_identity_is_refused(
    certificates: Certificates, router: ServiceProcess, stack: AsyncExitStack, tmp_path: Path
) -> None:
    # The topology's `impostor` should have a router's identity, and has a cache's.
    impostor = f"127.0.0.1:{free_port()}"
    environment = {
        "HEDGEROW_ROUTER_ADDRESS": impostor,
        "HEDGEROW_ROUTER_MODELS": MODELS,
        "HEDGEROW_ROUTER_TLS_DIR": str(certificates.folder / "cache"),
    }
    asked_as = certificates.of("operator", "cache")
    other = ServiceProcess(ServiceSpec("impostor", "services.router", impostor, environment, tls=asked_as), tmp_path)
    stack.push_async_callback(other.stop)
    await other.wait_serving()
    topology = tmp_path / "topology.yaml"
    services = {
        "router": {"endpoints": [{"address": router.spec.address}]},
        "impostor": {"endpoints": [{"address": impostor}], "identity": "router"},
    }
    topology.write_text(json.dumps({"services": services, "mtls": True}))  # JSON is YAML
    control = await mutual(stack, certificates, tmp_path, "control", topology=str(topology))

    async with calling(certificates, control.spec.address, "xds:///router") as caller, asyncio.timeout(WAIT_S):
        assert caller.stdout is not None
        assert (await caller.stdout.readline()) == b"ready\n"
        certificates.renew("router")
        certificates.renew("gateway")
        await until(lambda: router.log.read_text().count("certificate of router") == 2, WAIT_S)
        out, _ = await caller.communicate(b"")
        said = json.loads(out)
        assert said["OK"] > 0
        assert said["details"] == ""
    async with calling(certificates, control.spec.address, "xds:///impostor") as caller, asyncio.timeout(WAIT_S):
        assert caller.stdout is not None
        said = json.loads(await caller.stdout.readline())  # after its first call
        assert "OK" not in said
        assert "SAN" in said["details"]
