"""Service processes for fault tests, and the mesh that most of them share.

caller → gateway → proxy → cache, router   (real processes)
                 → proxy → faulty llm      (simulated, in this process)
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import PING_TIMEOUT_VARIABLE, open_channel
from launcher.processes import ServiceSpec, free_port
from tests.fault.asking import MODEL, Asker, asking
from tests.fault.faulty_llm import FaultyLlm, faulty_llm
from tests.fault.proxy import FaultProxy
from tests.forked import ServiceProcess

_MODULES = {
    "gateway": "services.gateway",
    "cache": "services.cache",
    "router": "services.router",
    "llm": "services.llm",
    "vision": "services.vision",
    "audio": "services.audio",
    "control": "services.control",
    "simulated_llm": "bench.simulated_llm",
    "faulty_llm": "tests.fault.faulty_llm",
}
# Lookups of a gateway that a busy machine may make late, where it matters what is found.
PATIENT_LOOKUPS = {"cache": {"share": 0.5, "cap_ms": 10_000}}
# Of processes that are to find a silent peer in 2 s, as they do by default. Tests otherwise give it more.
ATTENTIVE = {PING_TIMEOUT_VARIABLE: "900"}
# Of a gateway in a test of a fault's cost: on a busy machine it reaches no limit, and refuses nothing because its event
# loop is late.
UNLIMITED = {"limit__algorithm": "fixed", "limit__initial": 200, "shed__lag_ms": 10_000}


class Processes:
    """Starts service processes; every one is stopped when its stack is left."""

    def __init__(self, stack: AsyncExitStack, folder: Path):
        self._stack, self._folder, self._numbers = stack, folder, count()
        self.environment: dict[str, str] = {}  # of all that are started from now on, beside their settings
        self.dress: Callable[[ServiceSpec], ServiceSpec] = lambda spec: spec  # how those are started

    async def start(self, service: str, address: str = "", **settings: object) -> ServiceProcess:
        """A process that serves. Settings are the service's own, those in groups as `hedge__mode`."""
        process = self.launch(service, address, **settings)
        await process.wait_serving()
        return process

    def launch(self, service: str, address: str = "", **settings: object) -> ServiceProcess:
        """A process that was started just now."""
        address = address or f"127.0.0.1:{free_port()}"
        prefix = f"HEDGEROW_{service.upper()}_"
        environment = {f"{prefix}{name.upper()}": _text(value) for name, value in settings.items()}
        variables = {**self.environment, **environment, f"{prefix}ADDRESS": address}
        return self.run(ServiceSpec(f"{service}-{next(self._numbers)}", _MODULES[service], address, variables))

    def run(self, spec: ServiceSpec) -> ServiceProcess:
        """A process that was started just now, as `spec` says; also one like another that has ended."""
        process = ServiceProcess(self.dress(spec), self._folder)
        self._stack.push_async_callback(process.stop)
        return process

    async def gateway(self, *llms: str, **settings: object) -> ServiceProcess:
        """A gateway with the replicas `llms` of one model, and no cache or router unless `settings` name them."""
        if llms:
            settings["llm_addresses"] = {MODEL: llms[0] if len(llms) == 1 else llms}
        return await self.start("gateway", **{"cache_address": "", "router_address": "", **settings})

    async def router(self, **settings: object) -> ServiceProcess:
        """A router that knows the one model."""
        return await self.start(
            "router", models=[{"name": MODEL, "tier": "fast", "context_tokens": 100_000}], **settings
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[Processes]:
    async with AsyncExitStack() as stack:
        yield Processes(stack, folder)


@dataclass(slots=True)
class Mesh:
    """The shared mesh. `restart_cache` is the only way its processes change."""

    starter: Processes
    cache: ServiceProcess
    router: ServiceProcess
    gateway: ServiceProcess
    llm: FaultyLlm
    to_cache: FaultProxy
    to_router: FaultProxy
    to_llm: FaultProxy
    caller: Asker

    def heal(self) -> None:
        """Take every fault away."""
        for proxy in (self.to_cache, self.to_router, self.to_llm):
            proxy.heal()
        self.llm.reset()

    def launch_cache(self) -> ServiceProcess:
        """Start the cache again where it was."""
        self.cache = self.starter.launch("cache", self.cache.spec.address)
        return self.cache


async def killed(process: ServiceProcess) -> float:
    """Kill it; time.monotonic() when it is gone. A call that began before may have gone to it, a later one has not."""
    process.signal(signal.SIGKILL)
    await process.wait(poll_s=0.005)
    return time.monotonic()


async def stats(address: str) -> cache_pb2.GetStatsResponse:
    """The counters of a cache."""
    async with open_channel(address) as channel:
        stub: Any = cache_pb2_grpc.CacheServiceStub(channel)
        return await stub.GetStats(cache_pb2.GetStatsRequest(), timeout=5, wait_for_ready=True)


@asynccontextmanager
async def shared_mesh(folder: Path) -> AsyncIterator[Mesh]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        starter, llm = await enter(processes(folder)), await enter(faulty_llm())
        starter.environment |= ATTENTIVE
        cache, router = await asyncio.gather(starter.start("cache"), starter.router())
        to_cache, to_router, to_llm = [
            await enter(FaultProxy(target)) for target in (cache.spec.address, router.spec.address, llm.address)
        ]
        gateway = await starter.gateway(
            to_llm.address,
            cache_address=to_cache.address,
            router_address=to_router.address,
            metrics_address=f"127.0.0.1:{free_port()}",
            **UNLIMITED,
        )
        caller = await enter(asking(gateway.spec.address))
        yield Mesh(starter, cache, router, gateway, llm, to_cache, to_router, to_llm, caller)
