"""The composition root of the control plane: `python -m services.control`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from envoy.service.discovery.v3 import ads_pb2
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.control.v1 import control_pb2
from services.control import topology
from services.control.ads import Clients, DiscoveryServicer
from services.control.config import ControlSettings
from services.control.members import ResolvedNames
from services.control.mesh import MeshState
from services.control.servicer import ControlServicer
from services.control.snapshot import Renderer
from services.control.topology import BadTopology
from services.control.topology_file import follow
from services.runtime.process import serve
from services.runtime.rpc.boundary import Servicer
from services.runtime.security import tls

_CONTROL = control_pb2.DESCRIPTOR.services_by_name["ControlService"]
_DISCOVERY = ads_pb2.DESCRIPTOR.services_by_name["AggregatedDiscoveryService"]
_log = logging.getLogger("services.control")


@asynccontextmanager
async def assemble(settings: ControlSettings) -> AsyncIterator[Mapping[ServiceDescriptor, Servicer]]:
    """The servicers. They serve at once: early clients wait on their streams for the first round of health. Where the
    mesh cannot be followed any more, which is a bug, the process ends: it would serve what no longer holds."""
    async with tls.dial(settings.tls_dir) as dial, asyncio.TaskGroup() as group:
        mesh = MeshState(
            _first(settings),
            ResolvedNames(settings.resolve_timeout_ms / 1000),
            dial,
            health_timeout_s=settings.health_timeout_ms / 1000,
        )
        clients = Clients()
        renderers = follow(settings.topology, settings.envoy_sds_dir, settings.reread_ms)
        following = group.create_task(mesh.run(renderers, settings.resolve_interval_ms / 1000))
        try:
            yield {
                _DISCOVERY: DiscoveryServicer(mesh, clients),
                _CONTROL: ControlServicer(mesh, clients, str(settings.topology)),
            }
        finally:
            following.cancel()


def _first(settings: ControlSettings) -> Renderer:
    """The topology to start with. Exits with 2 when nothing can be made of it: there is no last good one."""
    try:
        return Renderer(topology.read(settings.topology), settings.envoy_sds_dir)
    except BadTopology as problem:
        _log.error("%s", problem)
        raise SystemExit(2) from None


if __name__ == "__main__":
    serve.main("control", ControlSettings, [_CONTROL, _DISCOVERY], assemble)
