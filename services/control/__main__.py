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
from services.control.members import Names
from services.control.mesh import Mesh
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
    """The servicers. They serve at once: early clients wait on their streams for the first round of health."""
    async with tls.dial(settings.tls_dir) as dial:
        mesh = Mesh(
            _first(settings),
            Names(settings.resolve_timeout_ms / 1000),
            dial,
            health_timeout_s=settings.health_timeout_ms / 1000,
        )
        clients = Clients()
        renderers = follow(settings.topology, settings.envoy_sds_dir, settings.reread_ms)
        running = asyncio.create_task(mesh.run(renderers, settings.resolve_interval_ms / 1000))
        running.add_done_callback(_log_failure)
        try:
            yield {
                _DISCOVERY: DiscoveryServicer(mesh, clients),
                _CONTROL: ControlServicer(mesh, clients, str(settings.topology)),
            }
        finally:
            running.cancel()
            await asyncio.wait({running})


def _first(settings: ControlSettings) -> Renderer:
    """The topology to start with. Exits with 2 when nothing can be made of it: there is no last good one."""
    try:
        return Renderer(topology.read(settings.topology), settings.envoy_sds_dir)
    except BadTopology as problem:
        _log.error("%s", problem)
        raise SystemExit(2) from None


def _log_failure(running: asyncio.Task[None]) -> None:
    """The mesh is followed to the end of the process; anything else is a bug that must not go unseen."""
    if not running.cancelled() and (error := running.exception()):
        _log.critical("the mesh is not followed any more", exc_info=error)


if __name__ == "__main__":
    serve.main("control", ControlSettings, [_CONTROL, _DISCOVERY], assemble)
