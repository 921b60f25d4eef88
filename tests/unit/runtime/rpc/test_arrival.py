"""Memory of requests that arrive, over a real connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from hedgerow.channel import done_sending
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.runtime.errors import Exhausted
from services.runtime.rpc.arrival import WINDOW_BYTES
from services.runtime.rpc.boundary import Call
from tests.unit.runtime.served import served

SERVICE = pb.DESCRIPTOR.services_by_name["GatewayService"]
LIST, CONVERSE = (f"/{SERVICE.full_name}/{name}" for name in ("ListTools", "Converse"))
MOST = 4 * WINDOW_BYTES


class Noting:
    """Notes what becomes of each request, and takes none of `refused`."""

    def __init__(self) -> None:
        self.noted = list[str]()
        self.refused = ""

    def authorize(self, metadata: Any, identity: str) -> str:
        return "known"

    def arriving(self, method: Any, credential: object, span: Any) -> Noting:
        self.noted.append(f"{credential}: {method.name}")
        if method.name == self.refused:
            raise Exhausted("no more", retry_delay_s=1)
        return self

    async def one(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        self.noted.append("read")
        return await read()

    async def all(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for raw in messages:
            self.noted.append("read")
            yield raw

    def admitted(self) -> None:
        self.noted.append("admitted")

    async def ListTools(self, request: Any, call: Call) -> pb.ListToolsResponse:
        call.admitted()
        self.noted.append("served")
        return pb.ListToolsResponse()

    async def Converse(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        async for _ in requests:
            yield pb.ConverseResponse()


@pytest.fixture
def servicer() -> Noting:
    return Noting()


@pytest.fixture
async def channel(servicer: Noting) -> AsyncIterator[grpc.aio.Channel]:
    own = {SERVICE.full_name: servicer}
    async with served([SERVICE], own, first_message_ms=20_000, max_message_bytes=MOST) as (opened, _):
        yield opened


async def code(call: Any) -> grpc.StatusCode:
    return await call.code()  # type: ignore[no-any-return]


async def test_a_request_goes_through_its_arrival_and_gives_all_back_at_its_end(
    channel: grpc.aio.Channel, servicer: Noting
) -> None:
    await channel.unary_unary(LIST)(b"", timeout=10)
    assert servicer.noted == ["known: ListTools", "read", "admitted", "served", "admitted"]
    servicer.noted.clear()
    stream = channel.stream_stream(CONVERSE)(timeout=10)
    await stream.write(b"")
    await stream.read()
    await done_sending(stream)
    assert await code(stream) is grpc.StatusCode.OK
    assert servicer.noted == ["known: Converse", "read", "admitted"]


async def test_a_call_may_be_refused_before_its_request_is_read(channel: grpc.aio.Channel, servicer: Noting) -> None:
    servicer.refused = "ListTools"
    assert await code(channel.stream_unary(LIST)(timeout=10)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert servicer.noted == ["known: ListTools"]
