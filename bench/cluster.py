"""Processes of a mesh, started for a measurement and stopped after it."""

from __future__ import annotations

import json
import sys
import tempfile
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml

from hedgerow.channel import open_channel
from launcher import envoy
from launcher.processes import ServiceProcess, ServiceSpec, free_ports
from launcher.replicas import xds_bootstrap

Progress = Callable[[str], None]
MODEL = "simulated"
WEST = {"west": {"latitude": 52.5, "longitude": 13.4}}
_START_S = 300.0


@asynccontextmanager
async def clustered(progress: Progress) -> AsyncIterator[Cluster]:
    """A cluster in a folder of its own, until the block is left."""
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            yield Cluster(stack, Path(folder), progress)


class Cluster:
    """Starts processes; every one is stopped when `stack` is left."""

    def __init__(self, stack: AsyncExitStack, folder: Path, progress: Progress):
        self.stack, self.folder, self.progress = stack, folder, progress
        self._control = ""

    async def start(self, name: str, module: str, address: str = "", **settings: Any) -> ServiceProcess:
        """Start a service and return when it serves. `settings` are the service's own, fixed ones too;
        `{"a": {"b": 1}}` is sent as JSON."""
        prefix = f"HEDGEROW_{module.rpartition('.')[2].upper()}_"
        address = address or an_address()
        own = {f"{prefix}{key.upper()}": _text(value) for key, value in {"address": address, **settings}.items()}
        command = (sys.executable, "-m", "bench.fixed_given", module)
        return await self.run(ServiceSpec(name, module, address, {**self._bootstrap(name), **own}, command))

    async def llm(self, name: str = "llm", **settings: Any) -> ServiceProcess:
        """Start a simulated llm service."""
        return await self.start(name, "bench.simulated_llm", **settings)

    async def router(self, as_: str = "router", **model: Any) -> ServiceProcess:
        """Start a router that knows one model."""
        known = {"name": MODEL, "tier": "fast", "context_tokens": 100_000, **model}
        return await self.start(as_, "services.router", models=[known])

    async def cache(self, name: str = "cache", **settings: Any) -> ServiceProcess:
        """Start a cache service."""
        return await self.start(name, "services.cache", database=str(self.folder / f"{name}.db"), **settings)

    async def gateway(self, name: str = "gateway", address: str = "", **settings: Any) -> ServiceProcess:
        """Start a gateway, which asks neither a cache nor a router unless `settings` name them."""
        alone = {"cache_address": "", "router_address": ""}
        return await self.start(name, "services.gateway", address, **{**alone, **settings})

    async def provider(self, tokens: int) -> str:
        """Start a simulated provider (`bench.provider`) that answers at once; return its URL."""
        process = await self.piped("bench.provider", "http1", "--tokens", str(tokens), "--each-ms", "0")
        line: bytes = await process.stdout.readline()
        return line.decode().strip()

    async def piped(self, module: str, *words: str) -> Any:
        """Start a module that reads requests from standard input and ends with it; its log is kept in the folder.
        Returns the `asyncio.subprocess.Process`."""
        log = self.stack.enter_context((self.folder / f"{module}.log").open("ab"))
        process = await create_subprocess_exec(
            sys.executable, "-m", module, *words, stdin=PIPE, stdout=PIPE, stderr=log
        )
        assert process.stdin
        self.stack.push_async_callback(process.wait)
        self.stack.callback(process.stdin.close)
        return process

    async def control(self, services: Mapping[str, object], **topology: object) -> None:
        """Start a control plane, which configures all that are started after it."""
        file = self.folder / "topology.yaml"
        file.write_text(yaml.safe_dump({"regions": WEST, "services": dict(services), **topology}))
        self._control = (await self.start("control", "services.control", topology=str(file))).spec.address

    async def envoy(self, address: str) -> ServiceProcess:
        """Start Envoy, which serves at `address` as the topology's `edge` says."""
        at: dict[str, Any] = {"control_address": self._control, "admin_address": an_address()}
        bootstrap = envoy.write_bootstrap(self.folder / "envoy", node_id="edge-bench", region="west", **at)
        command = tuple(envoy.command(bootstrap))
        return await self.run(ServiceSpec("envoy", "", address, command=command, folder=bootstrap.parent))

    async def run(self, spec: ServiceSpec) -> ServiceProcess:
        """Start a process and return when it serves."""
        process = self.begin(spec)
        await process.wait_serving(_START_S)
        return process

    def begin(self, spec: ServiceSpec) -> ServiceProcess:
        """Start a process."""
        self.progress(f"starting {spec.name}")
        process = ServiceProcess(spec, self.folder)
        self.stack.push_async_callback(process.stop)
        return process

    async def channel(self, process: ServiceProcess | str) -> grpc.aio.Channel:
        """Open a channel to a process or an address."""
        address = process if isinstance(process, str) else process.spec.address
        return await self.stack.enter_async_context(open_channel(address))

    def _bootstrap(self, name: str) -> dict[str, str]:
        """Where the control plane is, for a process that uses `xds:///` addresses."""
        if not self._control:
            return {}
        return {"GRPC_XDS_BOOTSTRAP_CONFIG": xds_bootstrap(self._control, name, region="west")}


def an_address() -> str:
    """A loopback address with a port that was free a moment ago."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
