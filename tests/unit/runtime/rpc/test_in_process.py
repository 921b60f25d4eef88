"""A channel to a service within the process: the service starts again, and the channel is closed."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.llm import Llm
from services.runtime.errors import Unavailable
from services.runtime.process.health import Health
from services.runtime.rpc.in_process import Address, Hosted, InProcessChannel
from tests.unit.runtime.rpc.transports import SERVICES, Scripted, forever, in_process
from tests.waiting import until


async def test_a_service_that_starts_again_is_called_where_it_was() -> None:
    address, service = Address(), Scripted()
    async with InProcessChannel(address) as channel:
        llm, servicers = Llm(channel, "small"), {descriptor.full_name: service for descriptor in SERVICES}
        with pytest.raises(Unavailable):
            await llm.context_tokens(30)
        for _ in range(2):
            ready = asyncio.create_task(channel.channel_ready())
            await asyncio.sleep(0)
            assert not ready.done()
            hosted = Hosted(SERVICES, servicers, Health().Watch)
            with address.held_by(hosted):
                await ready
                assert await llm.context_tokens(30) == 4096
                service.work = forever
                completion = llm.generate(llm_pb2.GenerateRequest(), 5, ())
                await until(lambda: len(service.calls) > 0, 5)
                await hosted.stop(0.01)
                with pytest.raises(Unavailable):
                    await completion.read()
                assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            service.work = None
            service.calls.clear()


async def test_a_channel_that_is_closed_ends_its_calls_and_takes_no_more() -> None:
    async with in_process(Scripted(work=forever)) as wired:
        wired.assemble()
        completion = wired.llm.generate(llm_pb2.GenerateRequest(), 5, ())
        await until(lambda: bool(wired.service.calls), 5)
        await wired.channel.close()
        assert wired.service.stopped.is_set()
        with pytest.raises(Unavailable):
            await completion.read()
        with pytest.raises(grpc.aio.UsageError):
            wired.llm.generate(llm_pb2.GenerateRequest(), 5, ())
