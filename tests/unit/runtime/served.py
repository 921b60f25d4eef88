"""A server of services, as their process has it, that listens, and a channel to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.channel import open_channel
from launcher.processes import free_port
from services.runtime.process.config import ServiceSettings
from services.runtime.process.health import Health
from services.runtime.process.server import listen, make_server
from services.runtime.rpc import boundary


@asynccontextmanager
async def served(
    descriptors: Sequence[ServiceDescriptor], servicers: Mapping[str, boundary.Servicer], **settings: Any
) -> AsyncIterator[tuple[grpc.aio.Channel, Health]]:
    """A connected channel, and the server's health, which says NOT_SERVING."""
    own = ServiceSettings(address=f"127.0.0.1:{free_port()}", **settings)
    server, health = make_server(own, descriptors, servicers, asyncio.Event())
    await listen(server, own.address, None)
    try:
        async with open_channel(own.address) as channel:
            await channel.channel_ready()
            yield channel, health
    finally:
        await server.stop(0)
