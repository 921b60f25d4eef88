"""How the control plane asks servers of all sorts for their health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from hedgerow.channel import open_channel
from launcher.processes import free_port
from services.control.health import watch_health
from services.control.members import Health
from tests.waiting import until

_LONG_S, _SHORT_S = 5, 0.3  # for the first word of a server that answers, and of one that does not
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class OnlyCheck(health_pb2_grpc.HealthServicer):
    """Health without Watch."""

    def __init__(self) -> None:
        self.status = SERVING

    async def Check(self, request: Any, context: Any) -> Any:
        return health_pb2.HealthCheckResponse(status=self.status)


class Silent(health_pb2_grpc.HealthServicer):
    """Takes a watch, and says nothing."""

    async def Watch(self, request: Any, context: Any) -> Any:
        await asyncio.Event().wait()
        yield


@pytest.fixture
async def address() -> str:
    return f"127.0.0.1:{free_port()}"


async def serving(address: str, servicer: Any = None) -> grpc.aio.Server:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    if servicer:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_insecure_port(address)
    await server.start()
    return server


@pytest.fixture
async def statuses(address: str) -> AsyncIterator[AsyncIterator[Health]]:
    async with open_channel(address) as channel, aclosing(watch_health(channel, _LONG_S)) as stream:
        yield stream


@pytest.fixture
async def told_soon(address: str) -> AsyncIterator[AsyncIterator[Health]]:
    async with open_channel(address) as channel, aclosing(watch_health(channel, _SHORT_S)) as stream:
        yield stream


async def heard(statuses: AsyncIterator[Health], wanted: Health) -> None:
    async with asyncio.timeout(20):
        async for word in statuses:
            if word is wanted:
                return


async def test_a_change_arrives_over_one_watch(address: str, statuses: AsyncIterator[Health]):
    checks = health.aio.HealthServicer()
    await checks.set("", SERVING)
    server = await serving(address, checks)
    assert await anext(statuses) is Health.SERVING
    await checks.set("", NOT_SERVING)
    assert await anext(statuses) is Health.NOT_SERVING
    await checks.set("", SERVING)
    assert await anext(statuses) is Health.SERVING
    await server.stop(0)
    assert await anext(statuses) is Health.UNREACHABLE


async def test_an_absent_endpoint_is_unreachable_until_it_serves(address: str, statuses: AsyncIterator[Health]):
    assert await anext(statuses) is Health.UNREACHABLE
    checks = health.aio.HealthServicer()
    await checks.set("", SERVING)
    server = await serving(address, checks)
    await heard(statuses, Health.SERVING)
    await server.stop(0)


async def test_an_endpoint_without_watches_is_polled(address: str, statuses: AsyncIterator[Health]):
    servicer = OnlyCheck()
    server = await serving(address, servicer)
    assert await anext(statuses) is Health.SERVING
    servicer.status = NOT_SERVING
    await heard(statuses, Health.NOT_SERVING)
    await server.stop(0)
    await heard(statuses, Health.UNREACHABLE)


async def test_an_endpoint_without_health_checks_serves_while_it_answers(address: str, statuses: AsyncIterator[Health]):
    server = await serving(address)
    assert await anext(statuses) is Health.SERVING
    await server.stop(0)
    await heard(statuses, Health.UNREACHABLE)


async def test_silence_is_an_answer(address: str, told_soon: AsyncIterator[Health]):
    server = await serving(address, Silent())
    assert await anext(told_soon) is Health.UNREACHABLE
    await server.stop(0)


async def test_a_port_that_takes_connections_and_never_speaks_is_unreachable(
    address: str, told_soon: AsyncIterator[Health]
):
    taken: list[asyncio.StreamWriter] = []

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)

    host, port = address.split(":")
    server = await asyncio.start_server(take, host, int(port))
    try:
        assert await anext(told_soon) is Health.UNREACHABLE
        await until(lambda: taken)
    finally:
        server.close()
        for writer in taken:
            writer.close()
