"""The ends of connections with a standing stream: GOAWAY, a break, a drain, and a channel that is closed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.llm import Llm
from services.runtime.errors import Unavailable
from services.runtime.rpc import boundary
from services.runtime.rpc.authorization import anyone
from services.runtime.rpc.standing import serving
from tests.unit.runtime.rpc.standing.connections import channel_to, plain_handlers, running, server_of
from tests.unit.runtime.rpc.transports import SERVICES, Scripted, forever
from tests.waiting import until


async def test_a_connection_that_takes_no_more_calls_gets_none_by_its_stream(service: Scripted, address: str) -> None:
    gate = asyncio.Event()
    servicers = {each.full_name: service for each in SERVICES}
    streams = serving.handlers(boundary.methods_by_path(SERVICES, servicers), anyone, 16, asyncio.Event())
    ages = [("grpc.max_connection_age_ms", 500)]
    async with server_of([*plain_handlers(service), streams], address, ages), channel_to(address) as channel:
        service.work = gate.wait
        completion = Llm(channel, "small").generate(llm_pb2.GenerateRequest(), 60, ())
        await until(lambda: bool(service.calls), 5)
        service.work = None
        await until(lambda: not channel.takes_calls, 5)
        assert await Llm(channel, "small").context_tokens(30) == 4096  # on a new connection
        await until(lambda: channel.takes_calls, 5)
        gate.set()
        assert [(await completion.read()).text for _ in range(3)] == ["Pa", "ris", ""]


async def test_calls_end_at_once_when_the_server_breaks_off_and_the_next_one_is_used(
    service: Scripted, address: str
) -> None:
    async with AsyncExitStack() as stack:
        async with running(service, address) as first:
            channel = await stack.enter_async_context(channel_to(address))
            service.work = forever
            completion = Llm(channel, "small").generate(llm_pb2.GenerateRequest(), 60, ())
            await until(lambda: bool(service.calls), 5)
            await first.server.stop(0)
            with pytest.raises(Unavailable):
                await asyncio.wait_for(completion.read(), 5)
            await asyncio.wait_for(service.stopped.wait(), 5)
        service.work = None
        async with running(service, address):
            await until(lambda: channel.get_state(True) is grpc.ChannelConnectivity.READY, 10)
            await until(lambda: channel.takes_calls, 5)
            assert await Llm(channel, "small").context_tokens(30) == 4096


async def test_a_server_that_drains_lets_calls_finish_and_then_is_gone(service: Scripted, address: str) -> None:
    gate = asyncio.Event()
    async with running(service, address) as (server, stopping), channel_to(address) as channel:
        service.work = gate.wait
        completion = Llm(channel, "small").generate(llm_pb2.GenerateRequest(), 60, ())
        await until(lambda: bool(service.calls), 5)
        stopping.set()
        ending = asyncio.create_task(server.stop(60))
        await until(lambda: not channel.takes_calls, 5)
        assert not ending.done()
        gate.set()
        assert [(await completion.read()).text for _ in range(3)] == ["Pa", "ris", ""]
        await asyncio.wait_for(ending, 5)  # far below the grace


async def test_a_channel_that_is_closed_with_a_grace_lets_calls_finish(service: Scripted, address: str) -> None:
    gate = asyncio.Event()
    async with running(service, address), channel_to(address) as channel:
        service.work = gate.wait
        completion = Llm(channel, "small").generate(llm_pb2.GenerateRequest(), 60, ())
        await until(lambda: bool(service.calls), 5)
        closing = asyncio.create_task(channel.close(60))
        await asyncio.sleep(0.05)
        assert not closing.done()
        gate.set()
        assert [(await completion.read()).text for _ in range(3)] == ["Pa", "ris", ""]
        await asyncio.wait_for(closing, 5)


async def test_a_channel_that_is_closed_ends_its_calls_and_takes_no_more(service: Scripted, address: str) -> None:
    async with running(service, address), channel_to(address) as channel:
        service.work = forever
        llm = Llm(channel, "small")
        completion = llm.generate(llm_pb2.GenerateRequest(), 60, ())
        await until(lambda: bool(service.calls), 5)
        await channel.close()
        with pytest.raises(Unavailable):
            await completion.read()
        await asyncio.wait_for(service.stopped.wait(), 5)
        with pytest.raises(grpc.aio.UsageError):
            llm.generate(llm_pb2.GenerateRequest(), 60, ())
