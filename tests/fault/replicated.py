"""A mesh as it is run on many machines, on this one: control plane, Envoy, Redis, and two processes of each service.

    caller → Envoy ─┬─▶ gateway 0 ─┐
                    └─▶ gateway 1 ─┴─▶ cache 0, 1 ∥ router 0, 1 → llm 0, 1 (simulated)

All find each other over xDS. A test may put a proxy before the second of each pair.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hedgerow.channel import open_channel
from hedgerow.control.v1 import control_pb2, control_pb2_grpc
from launcher import envoy
from launcher.processes import ServiceSpec, free_port
from launcher.replicas import xds_bootstrap
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.mesh import ATTENTIVE, UNLIMITED, Processes, processes
from tests.fault.proxy import FaultProxy
from tests.forked import ServiceProcess
from tests.redis import RedisProcess, redis_server
from tests.waiting import until

LAME_DUCK_MS, GRACE_MS = 300, 1_500
_CATALOGUE = [{"name": MODEL, "tier": "fast", "context_tokens": 100_000}]
_BALANCE = {"cache": "ring_hash"}


def address(host: str = "127.0.0.1") -> str:
    """A free one."""
    return f"{host}:{free_port()}"


@dataclass(slots=True)
class Replicated:
    """The mesh. `pairs` are by service; `caller` asks through Envoy."""

    starter: Processes
    redis: RedisProcess
    control: ServiceProcess
    topology: Path
    envoy: ServiceProcess
    caller: Asker
    pairs: Mapping[str, list[ServiceProcess]]
    proxies: Mapping[str, FaultProxy] = field(default_factory=dict)

    @property
    def edge(self) -> str:
        """Where callers come in."""
        return self.envoy.spec.address

    async def heal(self) -> None:
        """Take every fault away, and return when all serve."""
        for proxy in self.proxies.values():
            proxy.heal()
        if self.control.exit_code is not None:
            self.again(self.control)
        for process in [each for pair in self.pairs.values() for each in pair if each.exit_code is not None]:
            self.again(process)
        await self.well()

    def again(self, process: ServiceProcess) -> ServiceProcess:
        """Start one that has ended again, where it was."""
        started = self.starter.run(process.spec)
        for pair in self.pairs.values():
            pair[:] = [started if each is process else each for each in pair]
        if process is self.control:
            self.control = started
        return started

    async def get(self) -> control_pb2.GetMeshResponse:
        """The mesh as the control plane sees it."""
        async with open_channel(self.control.spec.address) as channel:
            stub: Any = control_pb2_grpc.ControlServiceStub(channel)
            return await stub.GetMesh(control_pb2.GetMeshRequest(), timeout=5, wait_for_ready=True)

    async def well(self, within_s: float = 30) -> None:
        """Return when every endpoint serves."""
        await self.until(lambda mesh: all(_serves(each) for of in mesh.services for each in of.endpoints), within_s)

    async def until(self, condition: Any, within_s: float = 15) -> control_pb2.GetMeshResponse:
        """Return when what the control plane sees fulfils `condition`."""
        return await until(self.get, within_s, holds=condition)

    def sees(self, process: ServiceProcess) -> Any:
        """A condition for `until`: the endpoint is in service."""

        def condition(mesh: control_pb2.GetMeshResponse) -> bool:
            endpoints = [each for of in mesh.services for each in of.endpoints]
            return any(each.address == process.spec.address and _serves(each) for each in endpoints)

        return condition


def _serves(endpoint: control_pb2.Endpoint) -> bool:
    return endpoint.health == control_pb2.ENDPOINT_HEALTH_SERVING and endpoint.in_service


def bootstrap(control: str, region: str = "west") -> dict[str, str]:
    """The environment of a process that finds the others over xDS."""
    return {"GRPC_XDS_BOOTSTRAP_CONFIG": xds_bootstrap(control, f"test-{region}", region=region)}


def write_topology(
    file: Path, edge: str, endpoints: Mapping[str, Sequence[object]], closed: bool = False, **more: object
) -> None:
    """`endpoints` by service, as the topology has them; plain addresses are put in the region `west`. `closed`:
    `edge` refuses callers without a credential."""
    services = {
        name: {
            "balance": _BALANCE.get(name, "round_robin"),
            # No replica is ejected in one test for faults of the test before.
            "outliers": {"consecutive_failures": 0},
            "endpoints": [{"address": each} if isinstance(each, str) else each for each in given],
        }
        for name, given in endpoints.items()
    }
    file.parent.mkdir(exist_ok=True)
    unfinished = file.with_suffix(".new")
    unfinished.write_text(
        yaml.safe_dump({"services": services, "edge": {"address": edge, "allow_anonymous": not closed}, **more})
    )
    unfinished.replace(file)


async def start_envoy(starter: Processes, folder: Path, control: str, edge: str) -> ServiceProcess:
    """Envoy that serves."""
    written = envoy.write_bootstrap(
        folder / "envoy", node_id="edge-test", region="west", control_address=control, admin_address=address()
    )
    process = starter.run(ServiceSpec("envoy", "", edge, command=tuple(envoy.command(written)), folder=written.parent))
    await process.wait_serving()
    return process


async def start_edge(starter: Processes, folder: Path, gateway: ServiceProcess, closed: bool = False) -> str:
    """An Envoy before one gateway, with a control plane of its own, both in `folder`. Returns the address for
    callers."""
    control, edge, topology = address(), address(), folder / "topology.yaml"
    write_topology(topology, edge, {"gateway": [gateway.spec.address]}, closed)
    await starter.start("control", control, topology=str(topology))
    await start_envoy(starter, folder, control, edge)
    return edge


@asynccontextmanager
async def replicated(folder: Path, proxied: Sequence[str] = ()) -> AsyncIterator[Replicated]:
    """`proxied`: the services before whose second process a proxy stands, as the topology has it."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        starter, redis = await enter(processes(folder)), await enter(redis_server(folder))
        control, edge, file = address(), address(), folder / "topology.yaml"
        at = {name: [address(), address()] for name in ("gateway", "cache", "router", "llm")}
        proxies = {name: await enter(FaultProxy(at[name][1])) for name in proxied}
        listed = {
            name: [first, proxies[name].address if name in proxies else second] for name, (first, second) in at.items()
        }
        write_topology(file, edge, listed)
        starter.environment |= ATTENTIVE
        controller = await starter.start("control", control, topology=str(file))
        starter.environment |= bootstrap(control)
        shared = {"redis_url": redis.url, "lame_duck_ms": LAME_DUCK_MS, "grace_ms": GRACE_MS}
        gateway = {
            "cache_address": "xds:///cache",
            "router_address": "xds:///router",
            "llm_addresses": {MODEL: "xds:///llm"},
            **UNLIMITED,
        }
        llm = {"each_ms": 5, "continues": True, "lame_duck_ms": LAME_DUCK_MS, "grace_ms": GRACE_MS}
        started = {
            "cache": [starter.launch("cache", each, **shared) for each in at["cache"]],
            "router": [starter.launch("router", each, models=_CATALOGUE, **shared) for each in at["router"]],
            "llm": [starter.launch("simulated_llm", each, **llm) for each in at["llm"]],
            "gateway": [starter.launch("gateway", each, **gateway, **shared) for each in at["gateway"]],
        }
        await asyncio.gather(*(process.wait_serving() for pair in started.values() for process in pair))
        front = await start_envoy(starter, folder, control, edge)
        caller = await enter(asking(edge))
        mesh = Replicated(starter, redis, controller, file, front, caller, started, proxies)
        await mesh.well()
        yield mesh
