"""Processes of a mesh, started for a measurement and stopped after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import yaml

from launcher import envoy
from launcher.processes import ServiceProcess, ServiceSpec, free_ports
from launcher.replicas import xds_bootstrap

Progress = Callable[[str], None]
MODEL = "simulated"
_CATALOGUE = [{"name": MODEL, "tier": "fast", "context_tokens": 100_000}]
_START_S = 300.0


class Cluster:
    """Starts processes; every one is stopped when `stack` is left."""

    def __init__(self, stack: AsyncExitStack, folder: Path, progress: Progress):
        self._stack, self._folder, self._progress = stack, folder, progress
        self._control = ""

    async def start(self, name: str, module: str, address: str = "", **settings: object) -> ServiceProcess:
        """A service under a name of its own that serves. `settings` are the service's own."""
        prefix = f"HEDGEROW_{module.rpartition('.')[2].upper()}_"
        address = address or an_address()
        told = {f"{prefix}{key.upper()}": _text(value) for key, value in {"address": address, **settings}.items()}
        return await self._run(ServiceSpec(name, module, address, {**self._bootstrap(name), **told}))

    async def llm(self, name: str, **settings: Any) -> ServiceProcess:
        """A simulated llm."""
        return await self.start(name, "bench.simulated_llm", **settings)

    async def router(self, name: str = "router") -> ServiceProcess:
        """A router that knows the simulated model alone."""
        return await self.start(name, "services.router", models=_CATALOGUE)

    async def control(self, topology: Mapping[str, object]) -> None:
        """A control plane, which all that are started after it may be configured by."""
        file = self._folder / "topology.yaml"
        file.write_text(yaml.safe_dump(dict(topology)))
        self._control = (await self.start("control", "services.control", topology=str(file))).spec.address

    async def envoy(self, address: str) -> ServiceProcess:
        """Envoy, which serves at `address` as the topology's `edge` says."""
        admin = an_address()
        bootstrap = envoy.write_bootstrap(
            self._folder / "envoy",
            node_id="edge-bench",
            region="west",
            control_address=self._control,
            admin_address=admin,
        )
        command = tuple(envoy.command(bootstrap))
        return await self._run(ServiceSpec("envoy", "", address, command=command, folder=bootstrap.parent))

    async def _run(self, spec: ServiceSpec) -> ServiceProcess:
        self._progress(f"mesh: starting {spec.name}")
        process = ServiceProcess(spec, self._folder)
        self._stack.push_async_callback(process.stop)
        await process.wait_serving(_START_S)
        return process

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
