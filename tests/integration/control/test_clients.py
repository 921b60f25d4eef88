"""The control plane as gRPC's own clients see it: real processes, real `xds:///` channels."""

from __future__ import annotations

import asyncio
import signal

from hedgerow.control.v1 import control_pb2
from tests.conftest import Start
from tests.integration.control.asked import NOT_SERVING, SERVING, Echo, Topology, asking, healths, service
from tests.integration.xds_client import xds_client
from tests.waiting import until

REGIONS = {"west": {"latitude": 52.5, "longitude": 13.4}, "east": {"latitude": 35.7, "longitude": 139.7}}


async def test_calls_are_spread_over_the_endpoints_that_serve(
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
    """Whether it is settled: healthy members are part of a version, and a check may be late on a busy machine."""
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


async def test_if_no_endpoint_serves_all_stay_in_service(
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
