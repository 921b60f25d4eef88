"""The control plane as gRPC's own clients see it: real processes, real `xds:///` channels."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow.channel import open_channel
from hedgerow.control.v1 import control_pb2, control_pb2_grpc
from launcher.certificate_authority import make_authority, write_identity
from launcher.processes import ServiceSpec, free_ports
from services.control.snapshot import ASSIGNMENTS, CLUSTERS
from tests.conftest import REPOSITORY, Start
from tests.forked import ServiceProcess
from tests.integration.xds_client import xds_client
from tests.waiting import until

REGIONS = {"west": {"latitude": 52.5, "longitude": 13.4}, "east": {"latitude": 35.7, "longitude": 139.7}}
SERVING, NOT_SERVING, UNREACHABLE = (
    control_pb2.ENDPOINT_HEALTH_SERVING,
    control_pb2.ENDPOINT_HEALTH_NOT_SERVING,
    control_pb2.ENDPOINT_HEALTH_UNREACHABLE,
)
Echo = Callable[..., Awaitable[ServiceProcess]]
Topology = Callable[..., Path]


@pytest.fixture
async def echo(tmp_path: Path) -> AsyncIterator[Echo]:
    """Starts echo servers, on an address each, and stops them after the test."""
    async with AsyncExitStack() as stack:

        async def echo(address: str, tls_dir: Path | None = None) -> ServiceProcess:
            environment = {"ECHO_ADDRESS": address, "ECHO_TLS_DIR": str(tls_dir or "")}
            spec = ServiceSpec(f"echo-{address}", "tests.integration.echo_server", address, environment)
            process = ServiceProcess(spec, tmp_path / "logs")
            stack.push_async_callback(process.stop)
            if not tls_dir:
                await process.wait_serving()
            return process

        yield echo


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """Writes the topology's file, as a careful operator does: beside it first, then in its place."""

    def write(**topology: Any) -> Path:
        file, new = tmp_path / "topology.yaml", tmp_path / "new"
        new.write_text(yaml.safe_dump(topology))
        return new.replace(file)

    return write


@pytest.fixture
def addresses() -> list[str]:
    return [f"127.0.0.1:{port}" for port in free_ports(3)]


def service(*addresses: str, **settings: Any) -> dict[str, Any]:
    return {"endpoints": [{"address": address} for address in addresses], **settings}


@asynccontextmanager
async def asking(process: ServiceProcess) -> AsyncIterator[Callable[[], Awaitable[control_pb2.GetMeshResponse]]]:
    """GetMesh of a control plane."""
    async with open_channel(process.spec.address) as channel:
        stub: Any = control_pb2_grpc.ControlServiceStub(channel)

        async def mesh() -> control_pb2.GetMeshResponse:
            return await stub.GetMesh(control_pb2.GetMeshRequest(), timeout=5, wait_for_ready=True)

        yield mesh


def healths(mesh: control_pb2.GetMeshResponse) -> list[int]:
    return [endpoint.health for service in mesh.services for endpoint in service.endpoints]


async def test_calls_are_spread_over_the_endpoints_and_who_stops_serving_is_left_out(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    first, _ = await echo(one), await echo(two)
    control = await start("control", topology=topology(services={"cache": service(one, two)}))
    async with xds_client(control.spec.address) as client:
        await client.until("cache", one, two)
        answered = await client.calls("cache", 100)
        assert min(answered[one], answered[two]) >= 45  # in turn
        first.signal(signal.SIGUSR1)
        await client.until("cache", two)
        first.signal(signal.SIGUSR2)
        await client.until("cache", one, two)


async def test_the_nearest_region_serves_the_next_stands_in_and_gives_back_without_a_failed_call(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    west, east, _ = addresses
    near, _ = await echo(west), await echo(east)
    endpoints = [{"address": west, "region": "west"}, {"address": east, "region": "east"}]
    file = topology(regions=REGIONS, services={"cache": {"endpoints": endpoints}})
    control = await start("control", topology=file)
    async with xds_client(control.spec.address, "west") as client, xds_client(control.spec.address, "east") as other:
        assert set(await client.calls("cache")) == {west}
        assert set(await other.calls("cache")) == {east}
        await client.begin("cache")
        near.signal(signal.SIGUSR1)
        await client.until("cache", east)
        near.signal(signal.SIGUSR2)
        await client.until("cache", west)
        assert set(await client.end("cache")) == {west, east}
        await near.stop()
        await client.until("cache", east)
        await echo(west)
        await client.until("cache", west)


async def test_a_tenant_stays_with_one_replica_and_tenants_are_spread(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    await asyncio.gather(echo(one), echo(two))
    control = await start("control", topology=topology(services={"cache": service(one, two, balance="ring_hash")}))
    async with xds_client(control.spec.address) as client:
        for tenant in ("ada", "bob", "eve"):
            assert len(await client.calls("cache", 10, tenant=tenant)) == 1
        assert set(await client.calls("cache", 100, tenants=True)) == {one, two}


async def test_a_canary_gets_about_its_share(start: Start, echo: Echo, topology: Topology, addresses: list[str]):
    one, two, canary = addresses
    await asyncio.gather(*map(echo, addresses))
    endpoints = [{"address": one, "weight": 9}, {"address": two, "weight": 9}]
    endpoints.append({"address": canary, "weight": 2, "build": "canary"})
    services = {
        "llm-fast": {"endpoints": endpoints},
        "cache": {"endpoints": endpoints, "balance": "ring_hash"},
    }
    control = await start("control", topology=topology(services=services))
    async with xds_client(control.spec.address) as client:
        for target in services:
            answered = await client.calls(target, 1_000, tenants=True)
            assert set(answered) == set(addresses)
            assert 40 <= answered[canary] <= 200  # a tenth


def _all_serve(mesh: control_pb2.GetMeshResponse) -> bool:
    """Whether it is settled: a version is also of who serves, and a check may come late on a busy machine."""
    return all(each.health == SERVING for of in mesh.services for each in of.endpoints)


async def test_calls_go_on_without_the_control_plane_and_through_its_return(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    await asyncio.gather(echo(one), echo(two))
    file = topology(services={"cache": service(one, two)})
    control = await start("control", topology=file)
    async with xds_client(control.spec.address) as client:
        await client.until("cache", one, two)
        await client.begin("cache")
        async with asking(control) as mesh:
            before = (await until(mesh, holds=_all_serve)).version
        control.signal(signal.SIGKILL)
        await control.wait()
        assert set(await client.calls("cache", 100)) == {one, two}
        again = await start("control", address=control.spec.address, topology=file)
        async with asking(again) as mesh:
            await until(mesh, holds=lambda now: any(each.node == "client-1" for each in now.clients))
            back = await until(mesh, holds=_all_serve)
        assert set(await client.calls("cache", 100)) == {one, two}
        assert set(await client.end("cache")) == {one, two}
        assert back.version == before


async def test_where_nobody_serves_all_stay_in_service(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    both = await asyncio.gather(echo(one), echo(two))
    control = await start("control", topology=topology(services={"cache": service(one, two)}))
    async with xds_client(control.spec.address) as client, asking(control) as mesh:
        await client.until("cache", one, two)
        for process in both:
            process.signal(signal.SIGUSR1)
        now = await until(mesh, holds=lambda now: healths(now) == [NOT_SERVING, NOT_SERVING])
        assert all(endpoint.in_service for endpoint in now.services[0].endpoints)
        await client.until("cache", one, two)


async def test_a_bad_topology_keeps_the_last_good_one_and_a_good_one_takes_its_place(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    await asyncio.gather(echo(one), echo(two))
    control = await start("control", topology=topology(services={"cache": service(one)}))
    async with xds_client(control.spec.address) as client, asking(control) as mesh:
        assert set(await client.calls("cache")) == {one}
        good = await mesh()
        topology(services={"cache": service(two, balance="by_moon")})
        bad = await until(mesh, holds=lambda now: now.topology_problem != "")
        assert "services.cache.balance" in bad.topology_problem
        assert "'by_moon'" in bad.topology_problem
        assert bad.version == good.version
        assert set(await client.calls("cache")) == {one}
        topology(services={"cache": service(two)})
        assert (await until(mesh, holds=lambda now: now.topology_problem == "")).version != good.version
        await client.until("cache", two)


async def test_a_file_behind_a_symbolic_link_is_followed_when_the_link_is_swapped(
    start: Start, tmp_path: Path, addresses: list[str]
):
    """As Kubernetes does with a ConfigMap: topology.yaml -> ..data/topology.yaml, ..data -> ..2026_01."""
    folder = tmp_path / "config"
    for version, address in zip(("..one", "..two"), addresses, strict=False):
        (folder / version).mkdir(parents=True)
        (folder / version / "topology.yaml").write_text(yaml.safe_dump({"services": {"cache": service(address)}}))
    (folder / "..data").symlink_to("..one")
    (folder / "topology.yaml").symlink_to("..data/topology.yaml")
    control = await start("control", topology=folder / "topology.yaml")
    async with asking(control) as mesh:
        assert [each.address for each in (await mesh()).services[0].endpoints] == [addresses[0]]
        (folder / "..new").symlink_to("..two")
        (folder / "..new").replace(folder / "..data")
        await until(mesh, holds=lambda now: [each.address for each in now.services[0].endpoints] == [addresses[1]])


async def test_a_bad_topology_at_the_start_ends_the_process(topology: Topology):
    file = topology(services={"cache": {"endpoints": []}})
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "services.control"],
        env={**os.environ, "HEDGEROW_CONTROL_TOPOLOGY": str(file)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "services.cache.endpoints" in ended.stderr


async def test_a_name_stands_for_its_addresses_and_health_is_told_with_its_age(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    _, port = addresses[0].split(":")
    await echo(addresses[0])
    control = await start("control", topology=topology(services={"cache": service(f"localhost:{port}")}))
    async with asking(control) as mesh:
        now = await until(mesh, holds=lambda now: SERVING in healths(now))
    of = {endpoint.address: endpoint for endpoint in now.services[0].endpoints}
    assert of[addresses[0]].in_service
    assert all(each.health == UNREACHABLE for address, each in of.items() if address != addresses[0])


async def test_a_refusal_is_shown_in_the_clients_words(start: Start, topology: Topology, addresses: list[str]):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel, asking(control) as mesh:
        stream: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        request = discovery_pb2.DiscoveryRequest(type_url=CLUSTERS, resource_names=["cache"])
        request.node.id = "doubtful-1"
        await stream.write(request)
        response = await asyncio.wait_for(stream.read(), 10)
        request.response_nonce, request.error_detail.message = response.nonce, "no such policy"
        await stream.write(request)
        now = await until(mesh, holds=lambda now: bool(now.clients and now.clients[0].subscriptions[0].refused))
        (subscription,) = now.clients[0].subscriptions
        assert (now.clients[0].node, subscription.refused) == ("doubtful-1", "no such policy")
        assert (subscription.sent_version, subscription.acked_version) == (response.version_info, "")
        stream.cancel()
    assert "doubtful-1 refuses Cluster: no such policy" in control.log.read_text()


async def test_endpoints_alone_can_be_followed_and_their_health_is_pushed(
    start: Start, echo: Echo, topology: Topology, addresses: list[str]
):
    one, two, _ = addresses
    first, _ = await echo(one), await echo(two)
    control = await start("control", topology=topology(services={"llm": service(one, two), "cache": service(two)}))
    async with open_channel(control.spec.address) as channel:
        stream: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        request = discovery_pb2.DiscoveryRequest(type_url=ASSIGNMENTS, resource_names=["llm"])
        await stream.write(request)
        before = await asyncio.wait_for(stream.read(), 10)
        request.response_nonce, request.version_info = before.nonce, before.version_info
        await stream.write(request)
        first.signal(signal.SIGUSR1)
        after = await asyncio.wait_for(stream.read(), 10)
        assert (len(before.resources), len(after.resources)) == (1, 1)
        assert before.version_info != after.version_info
        stream.cancel()


async def test_streams_end_in_order_when_the_control_plane_stops(
    start: Start, topology: Topology, addresses: list[str]
):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel:
        stream: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        await stream.write(discovery_pb2.DiscoveryRequest(type_url=CLUSTERS, resource_names=["cache"]))
        await asyncio.wait_for(stream.read(), 10)
        control.signal(signal.SIGTERM)
        assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert await control.wait() == 0


async def test_a_malformed_request_is_told_so_and_harms_nobody(start: Start, topology: Topology, addresses: list[str]):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel, asking(control) as mesh:
        method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        stream: Any = channel.stream_stream(method)()
        await stream.write(b"\xff\xff\xff")
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await mesh()).services


async def test_over_mtls_a_service_must_prove_its_identity(
    echo: Echo, topology: Topology, addresses: list[str], tmp_path: Path
):
    authority = make_authority()
    for identity in ("control", "gateway", "cache", "operator"):
        write_identity(tmp_path / identity, authority.pem(), authority.issue(identity, 1))
    await echo(addresses[0], tls_dir=tmp_path / "cache")
    file = topology(
        mtls=True,
        services={"cache": service(addresses[0]), "impostor": service(addresses[0], identity="llm")},
    )
    settings = {"TOPOLOGY": str(file), "TLS_DIR": str(tmp_path / "control"), "ADDRESS": addresses[1]}
    environment = {f"HEDGEROW_CONTROL_{name}": value for name, value in settings.items()}
    control = ServiceProcess(ServiceSpec("control", "services.control", addresses[1], environment), tmp_path / "logs")
    try:
        async with xds_client(addresses[1], tls_dir=tmp_path / "gateway") as client:
            await client.until("cache", addresses[0], timeout_s=30)
            (failed,) = await client.calls("impostor", 1)
            assert failed.startswith("UNAVAILABLE")
            assert "SAN" in failed
    finally:
        await control.stop()


async def test_health_of_the_control_plane_itself_is_served(start: Start, topology: Topology, addresses: list[str]):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        name = "envoy.service.discovery.v3.AggregatedDiscoveryService"
        reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    assert reply.status == health_pb2.HealthCheckResponse.SERVING
