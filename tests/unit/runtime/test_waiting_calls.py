"""Calls that have arrived and that the process has not begun: gRPC drops them at limits of its own."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc

from launcher.processes import free_port
from services.runtime.process.config import ServiceSettings
from tests.unit.runtime.served import start_server

_CHECK = "/grpc.health.v1.Health/Check"
_CALLS = 2_000  # by default gRPC drops some from 1,000 on


async def _ended(number: int, **settings: int) -> Counter[grpc.StatusCode]:
    """How calls end that a client starts in one turn of the event loop, so that all of them wait for the server."""
    address = f"127.0.0.1:{free_port()}"
    own = ServiceSettings(address=address, max_concurrent_streams=number, **settings)
    server, _ = await start_server(own, [], {}, asyncio.Event())
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        check = channel.unary_unary(_CHECK)
        calls = [check(b"", timeout=60) for _ in range(number)]
        codes = [await call.code() for call in calls]
    await server.stop(0)
    return Counter(codes)


async def test_each_of_thousands_of_calls_at_once_is_answered() -> None:
    assert await _ended(_CALLS) == {grpc.StatusCode.OK: _CALLS}


async def test_no_more_calls_wait_than_may() -> None:
    ended = await _ended(500, max_waiting_calls=100)
    assert set(ended) == {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
