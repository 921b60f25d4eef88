"""How calls on a standing stream end: cancelled, late, malformed, and without a trace."""

from __future__ import annotations

import asyncio
import gc

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.runtime.rpc.standing import frames
from services.runtime.rpc.standing.frames import CANCEL, DATA, END, OPEN, with_head
from tests.unit.runtime.rpc.standing.wire import GENERATE, Wire, message, outcome
from tests.unit.runtime.rpc.transports import Scripted, forever
from tests.waiting import until

OK, CANCELLED, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("turns", range(8))  # until then messages move
@pytest.mark.parametrize("endless", [True, False])
async def test_a_call_is_cancelled_at_any_point(wire: Wire, service: Scripted, turns: int, endless: bool) -> None:
    service.work = forever if endless else None
    call = wire.open()
    for _ in range(turns):
        wire.up()
        await asyncio.sleep(0)
        wire.down()
    assert call.cancel() or not endless
    await wire.settled()  # a second END would break the protocol
    if call.cancelled():
        with pytest.raises(asyncio.CancelledError):
            await call.read()
    assert not service.calls or not endless or service.stopped.is_set()
    assert (await _later(wire, service))[1] is OK


async def _later(wire: Wire, service: Scripted) -> tuple[list[bytes], grpc.StatusCode, str]:
    """Another call, which is not disturbed by the one before it."""
    service.work = None
    async with wire.moving():
        return await outcome(wire.open())


async def test_a_reader_that_is_cancelled_cancels_its_call(wire: Wire, service: Scripted) -> None:
    service.work = forever
    reading = asyncio.create_task(outcome(wire.open()))
    wire.up()
    await until(lambda: bool(service.calls))
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert [kind for kind, *_ in wire.up()] == [CANCEL]
    await wire.settled()
    assert service.stopped.is_set()


async def test_a_cancelled_call_keeps_its_place_until_its_servicer_has_stopped(service: Scripted) -> None:
    wire, may_stop = Wire(service, most_calls=1), asyncio.Event()

    async def stop_slowly() -> None:
        try:
            await forever()
        finally:
            await may_stop.wait()

    service.work = stop_slowly
    wire.down()
    call = wire.open()
    wire.up()
    await until(lambda: bool(service.calls))
    call.cancel()
    wire.up()
    await asyncio.sleep(0)
    wire.down()
    assert not wire.calls.takes_calls
    may_stop.set()
    await wire.settled()
    assert wire.calls.takes_calls


async def test_the_server_ends_a_call_that_is_late_by_itself(wire: Wire, service: Scripted) -> None:
    service.work = forever
    wire.served.receive(message(OPEN, 7, with_head([GENERATE, 1], (), b"")))
    await until(lambda: wire.served.is_empty)
    assert not service.calls or service.stopped.is_set()
    ((kind, number, payload),) = frames.read_frames(wire.served.outgoing.message())
    assert (kind, number) == (END, 7)
    assert frames.read_head(payload) == ([4], (), b"Deadline Exceeded")


async def test_the_caller_ends_a_call_that_is_late_and_cancels_it(wire: Wire) -> None:
    call = wire.open(timeout_s=0.001)
    assert (await outcome(call))[1:] == (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
    assert [kind for kind, *_ in wire.up()] == [OPEN, CANCEL]
    await wire.settled()


async def test_a_malformed_reply_ends_its_call(wire: Wire, service: Scripted) -> None:
    service.work = forever
    call = wire.calls.open(GENERATE, b"", 30, (), llm_pb2.GenerateResponse.FromString)
    assert call
    wire.up()
    await until(lambda: bool(service.calls))
    wire.calls.receive(message(DATA, 1, b"\xff"))
    assert (await outcome(call))[1:] == (grpc.StatusCode.INTERNAL, "a malformed reply of 1 bytes")
    await wire.settled()
    assert service.stopped.is_set()


async def test_a_call_that_is_over_leaves_nothing_to_the_garbage_collector(wire: Wire) -> None:
    async def calls(count: int) -> int:
        gc.collect()
        for _ in range(count):
            await outcome(wire.open())
            wire.open().cancel()
        await until(lambda: wire.calls.is_empty and wire.served.is_empty)
        return gc.collect()

    gc.disable()
    try:
        async with wire.moving():
            assert await calls(100) - await calls(1) < 100
    finally:
        gc.enable()
