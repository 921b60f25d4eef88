"""A control plane's topology and streams: what it follows, what it refuses, and what it says of clients."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc
import yaml
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from hedgerow.channel import open_channel
from services.control.snapshot import CLUSTERS
from tests.conftest import Start
from tests.integration.control.asked import SERVING, UNREACHABLE, Echo, Topology, asking, healths, service
from tests.integration.xds_client import xds_client
from tests.waiting import until


async def test_a_bad_topology_keeps_the_last_good_one_until_a_good_one_comes(
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


async def test_a_name_stands_for_its_addresses_and_each_has_its_own_health(
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
        response = await asyncio.wait_for(stream.read(), 20)
        request.response_nonce, request.error_detail.message = response.nonce, "no such policy"
        await stream.write(request)
        now = await until(mesh, holds=lambda now: bool(now.clients and now.clients[0].subscriptions[0].refused))
        (subscription,) = now.clients[0].subscriptions
        assert (now.clients[0].node, subscription.refused) == ("doubtful-1", "no such policy")
        assert (subscription.sent_version, subscription.acked_version) == (response.version_info, "")
        stream.cancel()
    assert "doubtful-1 refuses Cluster: no such policy" in control.log.read_text()


async def test_streams_end_in_order_when_the_control_plane_stops(
    start: Start, topology: Topology, addresses: list[str]
):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel:
        stream: Any = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        await stream.write(discovery_pb2.DiscoveryRequest(type_url=CLUSTERS, resource_names=["cache"]))
        await asyncio.wait_for(stream.read(), 20)
        control.signal(signal.SIGTERM)
        assert await asyncio.wait_for(stream.read(), 20) is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK
        assert await control.wait() == 0


async def test_a_malformed_request_is_refused_and_harms_no_other_client(
    start: Start, topology: Topology, addresses: list[str]
):
    control = await start("control", topology=topology(services={"cache": service(addresses[0])}))
    async with open_channel(control.spec.address) as channel, asking(control) as mesh:
        method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        stream: Any = channel.stream_stream(method)()
        await stream.write(b"\xff\xff\xff")
        assert await stream.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await mesh()).services
