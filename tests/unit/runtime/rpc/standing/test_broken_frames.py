"""A caller or a server that breaks the protocol of a standing stream, or is of a later release."""

from __future__ import annotations

import grpc
import pytest

from services.runtime.rpc.standing.frames import (
    CANCEL,
    CREDIT,
    DATA,
    END,
    HELLO,
    LEAVE,
    OPEN,
    PART,
    BadFrame,
    credit,
    with_head,
)
from tests.unit.runtime.rpc.standing.wire import GENERATE, Wire, message, outcome
from tests.unit.runtime.rpc.transports import Scripted
from tests.waiting import until

ALONE = with_head([GENERATE, None], (), b"")


@pytest.mark.parametrize(
    "messages",
    [
        [b"\x00"],
        [message(OPEN, 1)],
        [message(OPEN, 0, ALONE)],
        [message(OPEN, 1, ALONE), message(OPEN, 1, ALONE)],
        [message(OPEN, number, ALONE) for number in range(1, 18)],
        [message(OPEN, 1, with_head([GENERATE], (), b""))],
        [message(OPEN, 1, with_head([GENERATE, "soon"], (), b""))],
        [message(OPEN, 1, with_head([5, 5], (), b""))],
        [message(OPEN, 1, ALONE), message(CREDIT, 1, b"abc")],
        [message(OPEN, 1, ALONE), message(CREDIT, 1, credit(1))],  # nothing has been sent
    ],
    ids=str,
)
async def test_a_caller_that_breaks_the_protocol_is_refused(wire: Wire, messages: list[bytes]) -> None:
    *before, last = messages
    for each in before:
        wire.served.receive(each)
    with pytest.raises(BadFrame):
        wire.served.receive(last)
    await wire.end()


@pytest.mark.parametrize(
    ("kind", "number", "payload"),
    [
        (DATA, 5, b""),
        (PART, 5, b""),
        (END, 5, b""),
        (END, 1, b"abc"),
        (END, 1, with_head([99], (), b"")),
        (END, 1, with_head([], (), b"")),
        (END, 1, with_head([[1]], (), b"")),
        (HELLO, 0, b"many"),
        (HELLO, 0, with_head([], (), b"")),
        (HELLO, 0, with_head(["many"], (), b"")),
    ],
)
async def test_a_server_that_breaks_the_protocol_is_refused(wire: Wire, kind: int, number: int, payload: bytes) -> None:
    wire.open()
    with pytest.raises(BadFrame):
        wire.calls.receive(message(kind, number, payload))


@pytest.mark.parametrize("number", [0, 1, 9])
async def test_frames_of_kinds_that_a_later_release_adds_are_ignored(wire: Wire, number: int) -> None:
    call = wire.open()
    wire.up()
    later = message(LEAVE + 1, number, b"more")
    wire.served.receive(later + later)
    wire.calls.receive(later + later)
    await wire.settled()
    assert (await outcome(call))[1] is grpc.StatusCode.OK


async def test_what_a_later_release_adds_to_a_head_is_ignored(service: Scripted) -> None:
    wire = Wire(service)
    wire.calls.receive(message(HELLO, 0, with_head([1, {"more": 1}], (), b"")))
    call = wire.open()
    wire.calls.outgoing.message()
    wire.served.receive(message(OPEN, 1, with_head([GENERATE, None, "more", 5], (), b"")))
    await until(lambda: bool(service.calls))
    wire.calls.receive(message(END, 1, with_head([8, "more", 5], (), b"busy")))
    assert (await outcome(call))[1:] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "busy")
    await wire.end()


async def test_frames_for_calls_that_are_over_are_ignored(wire: Wire) -> None:
    wire.served.receive(message(CANCEL, 9) + message(CREDIT, 9, bytes(4)))
    assert not wire.served.outgoing.size
