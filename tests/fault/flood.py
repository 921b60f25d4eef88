"""A simulated abuser: starts calls on one connection and cancels each at once, as fast as it can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import grpc

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.fault.apart import apart
from tests.fault.asking import Asker, Outcome, asking, p99_ms, times_s

_LISTEN_S = 3.0  # how long a healthy caller is listened to


def flooding(address: str) -> AbstractAsyncContextManager[list[str]]:
    """The flood is at work inside, on the gateway at `address`."""
    return apart(_flood, address)


async def _flood(address: str) -> AsyncIterator[str]:
    async with asking(address) as caller:
        yield "flooding"
        while True:
            asked = [caller.start("Never mind?", bypass=True) for _ in range(20)]
            await asyncio.sleep(0)  # they are on their way
            for stream in asked:
                stream.cancel()
            await asyncio.sleep(0.001)


async def healthy(caller: Asker) -> list[Outcome]:
    """A caller that asks one question after the other."""
    outcomes: list[Outcome] = []
    until = time.monotonic() + _LISTEN_S
    while time.monotonic() < until:
        outcomes.append(await caller.ask(f"Healthy {time.monotonic_ns()}?", budget_ms=5_000, bypass=True))
        await asyncio.sleep(0.002)
    return outcomes


async def slowed_at_a_bare_server() -> float:
    """How many times longer the flood makes a healthy caller's 99th percentile at a server of `grpc.aio` alone."""
    async with apart(_bare_gateway, gives_way=False) as (address,), asking(address) as caller:
        before = await healthy(caller)
        async with flooding(address):
            during = await healthy(caller)
    return p99_ms(times_s(during)) / p99_ms(times_s(before))


async def _bare_gateway() -> AsyncIterator[str]:
    """Its address. It answers with a word."""
    final = pb.Final(finish_reason=chat_pb2.FINISH_REASON_STOP)
    answer = pb.GenerateResponse(events=[pb.Event(delta=pb.TextDelta(text="word")), pb.Event(final=final)])

    async def generate(request: pb.GenerateRequest, _: object) -> AsyncIterator[pb.GenerateResponse]:
        yield answer

    method = grpc.unary_stream_rpc_method_handler(
        generate, pb.GenerateRequest.FromString, pb.GenerateResponse.SerializeToString
    )
    server = grpc.aio.server()
    service = pb.DESCRIPTOR.services_by_name["GatewayService"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Generate": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.wait_for_termination()
