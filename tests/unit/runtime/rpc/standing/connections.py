"""Servers of gRPC, with a standing stream or without, and channels to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc

from hedgerow.channel import open_channel
from services.runtime.process.config import ServiceSettings
from services.runtime.process.server import listen, make_server
from services.runtime.rpc import boundary
from services.runtime.rpc.standing.channel import StandingChannel
from tests.unit.runtime.rpc.transports import SERVICES, Scripted
from tests.waiting import until


class Running(NamedTuple):
    """A server. `stopping` is set as a process's is when it drains."""

    server: grpc.aio.Server
    stopping: asyncio.Event


@asynccontextmanager
async def running(service: Scripted, address: str, **settings: Any) -> AsyncIterator[Running]:
    stopping, servicers = asyncio.Event(), {each.full_name: service for each in SERVICES}
    server, _ = make_server(ServiceSettings(address=address, **settings), SERVICES, servicers, stopping)
    await listen(server, address, None)
    try:
        yield Running(server, stopping)
    finally:
        await server.stop(0)


@asynccontextmanager
async def channel_to(address: str, *, on_a_stream: bool = True) -> AsyncIterator[StandingChannel]:
    async with StandingChannel(open_channel(address), "llm") as channel:
        channel.keep()
        await channel.channel_ready()
        if on_a_stream:
            await until(lambda: channel.takes_calls, 5)
        yield channel


@asynccontextmanager
async def server_of(
    handlers: list[Any], address: str, options: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[grpc.aio.Server]:
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)


def plain_handlers(service: Scripted) -> list[grpc.GenericRpcHandler]:
    servicers = {each.full_name: service for each in SERVICES}
    return [boundary.handlers(descriptor, servicers) for descriptor in SERVICES]
