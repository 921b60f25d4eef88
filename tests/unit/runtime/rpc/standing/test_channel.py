"""A channel with a standing stream, and servers of gRPC that offer one, do not, or refuse it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from prometheus_client import REGISTRY

from hedgerow.channel import open_channel
from hedgerow.llm.v1 import llm_pb2
from services.gateway.upstream.llm import Llm
from services.runtime.errors import CallerRefused
from services.runtime.rpc import boundary
from services.runtime.rpc.authorization import anyone
from services.runtime.rpc.standing import channel as standing
from services.runtime.rpc.standing import serving
from services.runtime.rpc.standing.channel import StandingChannel
from services.runtime.rpc.standing.frames import END, HELLO, LARGEST_OPEN, METHOD, OPEN, SERVICE, with_head
from tests.unit.runtime.rpc.standing.connections import channel_to, plain_handlers, running, server_of
from tests.unit.runtime.rpc.standing.wire import GENERATE, message
from tests.unit.runtime.rpc.transports import SERVICES, Scripted, forever
from tests.waiting import until


async def test_the_first_call_waits_for_no_stream(service: Scripted, address: str) -> None:
    async with running(service, address), StandingChannel(open_channel(address)) as channel:
        assert await Llm(channel, "small").context_tokens(30) == 4096
        await until(lambda: channel.takes_calls, 5)
        assert await Llm(channel, "small").context_tokens(30) == 4096


async def test_a_server_that_does_not_offer_it_is_called_as_before(service: Scripted, address: str) -> None:
    async with server_of(plain_handlers(service), address), channel_to(address, on_a_stream=False) as channel:
        for _ in range(20):
            assert await Llm(channel, "small").context_tokens(30) == 4096
        assert not channel.takes_calls


async def test_a_server_that_offers_it_after_an_update_is_called_by_it(service: Scripted, address: str) -> None:
    async with AsyncExitStack() as stack:
        async with server_of(plain_handlers(service), address):
            channel = await stack.enter_async_context(channel_to(address, on_a_stream=False))
            assert await Llm(channel, "small").context_tokens(30) == 4096
            assert _streams_to_llm() == 0
        async with running(service, address):
            await until(lambda: channel.get_state(True) is grpc.ChannelConnectivity.READY, 10)
            await until(lambda: channel.takes_calls, 10)  # far below the time between two streams that are refused
            assert await Llm(channel, "small").context_tokens(30) == 4096
            assert _streams_to_llm() == 1
        await until(lambda: _streams_to_llm() == 0, 5)


def _streams_to_llm() -> float | None:
    return REGISTRY.get_sample_value("hedgerow_standing_streams", {"service": "llm"})


async def test_a_caller_without_permission_gets_no_stream(service: Scripted, address: str) -> None:
    asked = 0

    def admit(_: Any) -> str:
        nonlocal asked
        asked += 1
        raise CallerRefused("a stranger may not call llm")

    methods = boundary.methods_by_path(SERVICES, {each.full_name: service for each in SERVICES}, anyone)
    refusing = serving.handlers(methods, admit, 16, asyncio.Event())
    handlers = [*plain_handlers(service), refusing]
    async with server_of(handlers, address), channel_to(address, on_a_stream=False) as channel:
        await until(lambda: asked, 5)
        assert await Llm(channel, "small").context_tokens(30) == 4096
        assert not channel.takes_calls


class Streams:
    """A server's handler of standing streams, each of which `serve` serves. `asked`: how many there were."""

    def __init__(self, serve: Callable[[Any, int], Awaitable[None]]):
        self._serve, self.asked = serve, 0

    async def _calls(self, _: AsyncIterator[bytes], context: Any) -> None:
        self.asked += 1
        await self._serve(context, self.asked)

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE, {METHOD: grpc.stream_stream_rpc_method_handler(self._calls)}
        )


async def test_a_server_that_breaks_the_protocol_is_called_as_before(
    service: Scripted, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standing, "_AGAIN_S", 0)

    async def break_it(context: Any, _: int) -> None:
        await context.write(message(HELLO, 0, with_head([16], (), b"")) + message(END, 1))
        await forever()

    streams = Streams(break_it)
    handlers = [*plain_handlers(service), streams.handlers()]
    async with server_of(handlers, address), channel_to(address, on_a_stream=False) as channel:
        await until(lambda: "a frame for call 1, which is not open" in caplog.text, 5)
        for _ in range(20):
            assert await Llm(channel, "small").context_tokens(30) == 4096
        assert streams.asked == 1


async def test_the_log_says_why_a_server_refuses_frames_that_are_still_sent(
    service: Scripted, address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(standing, "_LATER_S", 0)

    async def refuse_the_second(context: Any, _: int) -> None:
        await context.write(message(HELLO, 0, with_head([16], (), b"")))
        for _ in range(2):
            await context.read()
        context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
        context.set_details("no frame")

    streams = Streams(refuse_the_second)
    async with server_of([streams.handlers()], address), channel_to(address) as channel:
        llm = Llm(channel, "small")
        for _ in range(10):
            await until(lambda: channel.takes_calls, 5)
            calls = [llm.generate(llm_pb2.GenerateRequest(prefix="x" * 60_000), 30, ()) for _ in range(16)]
            await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
    assert {record.getMessage() for record in caplog.records} == {
        "the standing stream to llm has ended: INVALID_ARGUMENT: no frame"
    }


async def test_a_stream_that_is_lost_before_the_greeting_is_opened_again(service: Scripted, address: str) -> None:
    async def lose_one(context: Any, number: int) -> None:
        if number == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        await context.write(message(HELLO, 0, with_head([16], (), b"")))
        await forever()

    streams = Streams(lose_one)
    async with server_of([streams.handlers()], address), channel_to(address):
        assert streams.asked == 2


@pytest.mark.parametrize("many", [20, 1])
async def test_calls_that_the_stream_cannot_take_are_gRPCs_own(service: Scripted, address: str, many: int) -> None:
    """More calls at once than it may have, and one that is larger than a frame may be."""
    prefix = "" if many > 1 else "x" * (LARGEST_OPEN + 1)
    async with running(service, address, max_concurrent_streams=16), channel_to(address) as channel:
        llm = Llm(channel, "small")
        await asyncio.gather(*(_whole(llm, prefix) for _ in range(many)))
        assert {request.prefix for request in service.requests} == {prefix}


async def _whole(llm: Llm, prefix: str) -> None:
    completion = llm.generate(llm_pb2.GenerateRequest(prefix=prefix), 30, ())
    assert [(await completion.read()).text for _ in range(3)] == ["Pa", "ris", ""]
    await completion.ended()


async def test_a_caller_that_sends_no_frames_is_refused(service: Scripted, address: str) -> None:
    async with running(service, address), open_channel(address) as channel:
        call: Any = channel.stream_stream("/hedgerow.internal.StandingStream/Calls")()
        await call.read()  # HELLO
        await call.write(b"no frame")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_call_begins_while_large_replies_wait_to_be_sent(service: Scripted) -> None:
    methods = boundary.methods_by_path(SERVICES, {each.full_name: service for each in SERVICES}, anyone)
    context, service.texts = _Context(), ("x" * 3_000_000,)
    serve = serving.handlers(methods, anyone, 16, asyncio.Event()).service(_Details())  # type: ignore[arg-type]
    assert serve is not None
    serving_it = asyncio.create_task(serve.stream_stream(iter(()), context))
    await until(lambda: len(service.calls) == 10)
    serving_it.cancel()
    await asyncio.gather(serving_it, return_exceptions=True)


class _Details:
    method = "/hedgerow.internal.StandingStream/Calls"
    invocation_metadata = ()


class _Context:
    """Of a caller that opens ten calls, each once the one before it has replied, and reads no reply."""

    def __init__(self) -> None:
        self._opened = 0

    async def read(self) -> bytes:
        for _ in range(20):
            await asyncio.sleep(0)
        if self._opened == 10:
            await forever()
        self._opened += 1
        return message(OPEN, self._opened, with_head([GENERATE, None], (), b""))

    async def write(self, _: bytes) -> None:
        await forever()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"
