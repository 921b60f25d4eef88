"""Calls on a standing stream, whose messages move when a test says so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import grpc
import pytest

from hedgerow.llm.v1 import llm_pb2
from services.runtime.rpc.boundary import Call
from services.runtime.rpc.standing import calling, frames
from services.runtime.rpc.standing.frames import DATA, END, LARGEST_OPEN, LEAVE, OPEN, WINDOW_BYTES, BadFrame, with_head
from tests.unit.runtime.rpc.standing.wire import COUNT, GENERATE, Wire, message, outcome
from tests.unit.runtime.rpc.transports import Scripted, forever
from tests.waiting import until

OK, CANCELLED, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE


def words(replies: list[bytes]) -> list[str]:
    return [llm_pb2.GenerateResponse.FromString(reply).text for reply in replies]


async def test_no_call_is_taken_before_the_server_has_greeted(service: Scripted) -> None:
    wire = Wire(service)
    assert not wire.calls.takes_calls
    assert wire.calls.open(GENERATE, b"", 1, (), bytes) is None
    wire.down()
    assert wire.calls.takes_calls


async def test_an_answer_that_is_ready_at_once_is_one_message(wire: Wire) -> None:
    call = wire.open()
    wire.up()
    await until(lambda: wire.served.is_empty)
    wire.calls.receive(wire.served.outgoing.message())
    assert not wire.served.outgoing.size
    replies, code, _ = await outcome(call)
    assert (words(replies), code) == (["Pa", "ris", ""], OK)


async def test_many_answers_of_all_sizes_arrive_whole_and_in_order() -> None:
    rng = random.Random(5)
    sizes = {f"q{number}": [rng.choice((0, 5, 70_000, 300_000)) for _ in range(6)] for number in range(12)}
    sizes["larger than the window"] = [3_000_000, 1]

    class Sized(Scripted):
        async def Generate(
            self, request: llm_pb2.GenerateRequest, call: Call
        ) -> AsyncIterator[llm_pb2.GenerateResponse]:
            for size in sizes[request.prefix]:
                yield llm_pb2.GenerateResponse(text=request.prefix + "x" * size)
                await asyncio.sleep(0)

    wire = Wire(Sized())
    async with wire.moving():
        await until(lambda: wire.calls.takes_calls)
        calls = {name: asyncio.create_task(outcome(wire.open(prefix=name))) for name in sizes}
        for name, task in calls.items():
            replies, code, _ = await task
            assert code is OK
            assert words(replies) == [name + "x" * size for size in sizes[name]]


async def test_a_slow_reader_holds_up_its_own_call_alone(wire: Wire, service: Scripted) -> None:
    service.texts = ("x" * 50_000,) * 100
    slow, held = wire.open(), 0
    async with wire.moving():
        await until(lambda: service.sent >= WINDOW_BYTES // 50_000)
        for _ in range(50):
            await asyncio.sleep(0)
        held = service.sent
        assert held * 50_000 <= WINDOW_BYTES + 2 * 50_000
        replies, code, _ = await outcome(wire.open())
        assert (len(replies), code) == (101, OK)
        replies, code, _ = await outcome(slow)
        assert (len(replies), code) == (101, OK)


async def test_a_reply_larger_than_a_message_may_be_ends_its_call(wire: Wire, service: Scripted) -> None:
    service.texts = ("x" * 4_200_000,)
    replies, code, _ = [], OK, ""
    async with wire.moving():
        replies, code, _ = await outcome(wire.open())
    assert (replies, code) == ([], grpc.StatusCode.RESOURCE_EXHAUSTED)
    await wire.settled()


async def test_calls_of_a_stream_that_breaks_are_unavailable_after_what_has_arrived(wire: Wire) -> None:
    answered, waiting = wire.open(), wire.open(COUNT)
    number = 1
    wire.calls.receive(message(DATA, number, b"text"))
    wire.calls.fail("Socket closed")
    assert await outcome(answered) == ([b"text"], UNAVAILABLE, "Socket closed")
    assert await outcome(waiting) == ([], UNAVAILABLE, "Socket closed")
    assert wire.calls.closed.is_set()
    assert wire.calls.open(GENERATE, b"", 1, (), bytes) is None
    answered.cancel()
    assert [kind for kind, *_ in frames.read_frames(wire.calls.outgoing.message())] == [OPEN, OPEN]


async def test_a_server_that_leaves_still_serves_a_call_that_was_on_its_way(wire: Wire, service: Scripted) -> None:
    call = wire.open()
    wire.served.leave()
    wire.down()
    assert not wire.calls.takes_calls
    assert wire.calls.closed.is_set()
    assert [kind for kind, *_ in wire.up()] == [OPEN, LEAVE]
    assert not wire.served.over
    wire.served.filled.clear()
    await wire.settled()
    assert wire.served.over
    assert wire.served.filled.is_set()
    assert (await outcome(call))[1] is OK


async def test_a_caller_that_leaves_opens_no_more_calls(service: Scripted) -> None:
    wire = Wire(service)
    wire.calls.leave()
    wire.down()  # HELLO arrives late
    assert not wire.calls.takes_calls
    wire.up()
    assert wire.served.over


async def test_a_large_request_is_none_for_the_stream(wire: Wire) -> None:
    assert wire.calls.open(GENERATE, bytes(LARGEST_OPEN + 1), 1, (), bytes) is None
    assert wire.calls.open(GENERATE, bytes(LARGEST_OPEN), 1, (), bytes) is not None


async def test_no_more_calls_are_open_than_the_server_allows(service: Scripted) -> None:
    wire = Wire(service, most_calls=2)
    wire.down()
    wire.open()
    wire.open()
    assert not wire.calls.takes_calls
    await wire.settled()
    assert wire.calls.takes_calls


async def test_calls_whose_end_has_not_left_count_as_open(wire: Wire) -> None:
    """So a caller that reads nothing opens no more."""
    nowhere = with_head(["/no.Such/Method", None], (), b"")
    for number in range(1, 17):
        wire.served.receive(message(OPEN, number, nowhere))
    for number in (1, 17):  # that of an open call, and one too many
        with pytest.raises(BadFrame):
            wire.served.receive(message(OPEN, number, nowhere))
    wire.served.outgoing.message()
    wire.served.receive(message(OPEN, 17, nowhere))


async def test_numbers_begin_again_beside_calls_that_are_open(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_MOST_NUMBERS", 3)
    for _ in range(2):
        wire.open()
    call = wire.open()
    call.cancel()
    found = await wire.settled()
    assert sorted(number for kind, number, _ in found if kind == END) == [1, 2, 3]
    wire.open(timeout_s=None)  # number 1
    wire.calls.outgoing.message()
    for expected in (2, 3):
        wire.open()
        assert [number for _, number, _ in wire.up()] == [expected]
    assert {number for kind, number, _ in await _ends(wire, 2)} == {2, 3}
    wire.open()
    assert [number for _, number, _ in wire.up()] == [2]


async def test_a_number_may_be_used_again_as_soon_as_its_call_has_its_end(wire: Wire, service: Scripted) -> None:
    opening = message(OPEN, 1, with_head([GENERATE, None], (), b""))
    wire.served.receive(opening)
    while not wire.served.is_empty:
        await asyncio.sleep(0)
    wire.served.outgoing.message()
    service.work = forever
    wire.served.receive(opening)  # in the same turn of the event loop
    await until(lambda: len(service.calls) == 2)
    assert not wire.served.outgoing.size
    await wire.end()


async def _ends(wire: Wire, number: int) -> list[tuple[int, int, bytes]]:
    found = list[tuple[int, int, bytes]]()

    def come() -> bool:
        found.extend(frame for frame in wire.down() if frame[0] == END)
        return len(found) == number

    await until(come)
    return found
