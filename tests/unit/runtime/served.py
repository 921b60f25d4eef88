"""A server of a service, as its process has it, that listens."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from services.runtime.process.config import ServiceSettings
from services.runtime.process.health import Health
from services.runtime.process.server import listen, make_server
from services.runtime.rpc import boundary


async def start_server(
    settings: ServiceSettings,
    descriptors: Sequence[ServiceDescriptor],
    servicers: Mapping[str, boundary.Servicer],
    ended: asyncio.Event,
) -> tuple[grpc.aio.Server, Health]:
    """The server and its health, which says NOT_SERVING."""
    server, health = make_server(settings, descriptors, servicers, ended)
    await listen(server, settings.address, None)
    return server, health
