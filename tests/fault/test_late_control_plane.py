"""Services that use xDS may start before the control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hedgerow.channel import open_channel
from hedgerow.router.v1 import router_pb2, router_pb2_grpc
from tests.fault.asking import asking
from tests.fault.faulty_llm import FaultyLlm
from tests.fault.mesh import Processes
from tests.fault.replicated import address, bootstrap, write_topology
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_a_gateway_that_is_there_first_follows_the_router_and_the_cache_all_the_same(
    starter: Processes, llm: FaultyLlm, tmp_path: Path
):
    control, gateway, file = address(), address(), tmp_path / "topology.yaml"
    router, cache = await starter.router(), await starter.start("cache")
    listed = {"gateway": gateway, "router": router.spec.address, "cache": cache.spec.address}
    write_topology(file, address(), {service: [at] for service, at in listed.items()})
    starter.environment = bootstrap(control)
    found = {"router_address": "xds:///router", "cache_address": "xds:///cache"}
    await starter.gateway(llm.address, address=gateway, ready_wait_ms=500, **found)
    async with asking(gateway) as caller, open_channel(router.spec.address) as channel:
        asked: Any = router_pb2_grpc.RouterServiceStub(channel)

        async def observed() -> int:
            return int((await asked.ListModels(router_pb2.ListModelsRequest(), timeout=5)).models[0].total.samples)

        async def kept() -> bool:
            return (await caller.ask("Again?", model="")).stage("cache").detail == "exact, kept in the gateway"

        assert "router:unavailable" in (await caller.ask("Early?", model="")).final.degraded
        await starter.start("control", control, topology=str(file))
        await caller.until(lambda outcome: outcome.ok, within_s=30, model="")  # the router's table is here
        await until(observed, 30)
        await until(kept, 30)  # it stores nothing before it follows the cache's removals
