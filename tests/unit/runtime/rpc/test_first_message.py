"""A call that has begun and says nothing, over a real connection. As no client of one request can do that, one of
streams calls here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from hedgerow.channel import done_sending, send
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.gateway.v1 import gateway_pb2_grpc
from services.runtime.errors import TooLate, Unauthenticated
from services.runtime.rpc.boundary import Call
from services.runtime.rpc.first_message import message, messages
from tests.unit.runtime.served import served
from tests.waiting import until

SERVICE = pb.DESCRIPTOR.services_by_name["GatewayService"]
GENERATE, CONVERSE = (f"/{SERVICE.full_name}/{name}" for name in ("Generate", "Converse"))
CHECK, WATCH = (f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch"))
WITHIN_MS = 100
KEY = (("authorization", "Bearer sesame"),)


class Keyed:
    """Answers at once, and a conversation when its first message is there; twice `WITHIN_MS` later."""

    def __init__(self) -> None:
        self.served = 0

    def authorize(self, metadata: Any, identity: str) -> None:
        if KEY[0] not in metadata:
            raise Unauthenticated("authorization: required")

    async def Generate(self, request: Any, call: Call) -> AsyncIterator[Any]:
        self.served += 1
        await asyncio.sleep(2 * WITHIN_MS / 1000)
        yield pb.GenerateResponse()

    async def Converse(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        async for _ in requests:
            self.served += 1
            await asyncio.sleep(2 * WITHIN_MS / 1000)
            yield pb.ConverseResponse()


@pytest.fixture
def servicer() -> Keyed:
    return Keyed()


@pytest.fixture
async def channel(servicer: Keyed) -> AsyncIterator[grpc.aio.Channel]:
    async with served([SERVICE], {SERVICE.full_name: servicer}, first_message_ms=WITHIN_MS) as (opened, _):
        yield opened


def begun(channel: grpc.aio.Channel, method: str, metadata: Any = KEY) -> Any:
    """A call's headers, and nothing else."""
    return channel.stream_stream(method)(metadata=metadata, timeout=10)


async def ended(call: Any) -> grpc.StatusCode:
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("method", [GENERATE, CONVERSE])
async def test_a_caller_without_a_key_is_refused_by_its_headers_alone(
    channel: grpc.aio.Channel, servicer: Keyed, method: str
) -> None:
    assert await ended(begun(channel, method, metadata=())) is grpc.StatusCode.UNAUTHENTICATED
    assert not servicer.served


@pytest.mark.parametrize("method", [GENERATE, CONVERSE, CHECK, WATCH])
async def test_a_first_message_that_does_not_come_ends_the_call(
    channel: grpc.aio.Channel, servicer: Keyed, method: str
) -> None:
    call = begun(channel, method)
    assert await ended(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert await call.details() == "request: its first message whole within 0.1 s, got less"
    assert not servicer.served


@pytest.mark.parametrize("method", [GENERATE, CHECK])
async def test_a_call_without_its_one_message_is_refused(channel: grpc.aio.Channel, method: str) -> None:
    call = begun(channel, method)
    await done_sending(call)
    assert await ended(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_answer_may_take_longer_than_its_request(channel: grpc.aio.Channel) -> None:
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
    assert len([each async for each in stub.Generate(pb.GenerateRequest(), metadata=KEY)]) == 1


async def test_only_the_first_message_of_many_has_a_time(channel: grpc.aio.Channel, servicer: Keyed) -> None:
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
    call = stub.Converse(metadata=KEY, timeout=10)
    for number in range(2):
        assert await send(call, pb.ConverseRequest())
        await call.read()
        assert servicer.served == number + 1
    await done_sending(call)
    assert await ended(call) is grpc.StatusCode.OK


async def test_a_client_that_leaves_before_its_first_message_is_forgotten(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    call = begun(channel, GENERATE)
    await call.wait_for_connection()
    call.cancel()
    stub: Any = gateway_pb2_grpc.GatewayServiceStub(channel)
    assert [each async for each in stub.Generate(pb.GenerateRequest(), metadata=KEY)]
    assert not caplog.records


class LateMessage:
    """A message that comes once it `came`; `ends` has how reads of it ended."""

    def __init__(self) -> None:
        self.came, self.ends = asyncio.Event(), list[str]()

    def __aiter__(self) -> LateMessage:
        return self

    async def __anext__(self) -> bytes:
        return await self.read()

    async def read(self) -> bytes:
        try:
            await self.came.wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        self.ends.append("read")
        return b"late"


READS: dict[str, Callable[[LateMessage, float], Awaitable[bytes]]] = {
    "the one message": message,
    "the first of many": lambda late, within_s: anext(messages(late, within_s)),
    "one of many": lambda late, _: anext(messages(late)),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_of_a_cancelled_caller_goes_on_to_its_end(name: str) -> None:
    late = LateMessage()
    reading = asyncio.ensure_future(READS[name](late, 60))
    await asyncio.sleep(0.01)
    reading.cancel()
    await asyncio.wait({reading})
    assert (reading.cancelled(), late.ends) == (True, [])
    late.came.set()
    await until(lambda: late.ends)
    assert late.ends == ["read"]


@pytest.mark.parametrize("name", ["the one message", "the first of many"])
async def test_a_read_that_is_too_late_goes_on_to_its_end(name: str) -> None:
    late = LateMessage()
    with pytest.raises(TooLate):
        await READS[name](late, 0.01)
    assert late.ends == []
    late.came.set()
    await until(lambda: late.ends)
    assert late.ends == ["read"]
