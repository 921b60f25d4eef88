"""A caller or a server that breaks the protocol of a standing stream."""

from __future__ import annotations

import pytest

from services.runtime.rpc.standing.frames import CANCEL, CREDIT, DATA, END, OPEN, PART, BadFrame, with_head
from tests.unit.runtime.rpc.standing.wire import GENERATE, Wire, message

ALONE = with_head([GENERATE, None], (), b"")


@pytest.mark.parametrize(
    "messages",
    [
        [b"\x00"],
        [message(99)],
        [message(OPEN, 1)],
        [message(OPEN, 0, ALONE)],
        [message(OPEN, 1, ALONE), message(OPEN, 1, ALONE)],
        [message(OPEN, number, ALONE) for number in range(1, 18)],
        [message(OPEN, 1, with_head([GENERATE], (), b""))],
        [message(OPEN, 1, with_head([GENERATE, "soon"], (), b""))],
        [message(OPEN, 1, with_head([5, 5], (), b""))],
        [message(OPEN, 1, ALONE), message(CREDIT, 1, b"abc")],
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
        (0, 0, b"many"),
    ],
)
async def test_a_server_that_breaks_the_protocol_is_refused(wire: Wire, kind: int, number: int, payload: bytes) -> None:
    wire.open()
    with pytest.raises(BadFrame):
        wire.calls.receive(message(kind, number, payload))


async def test_frames_for_calls_that_are_over_are_ignored(wire: Wire) -> None:
    wire.served.receive(message(CANCEL, 9) + message(CREDIT, 9, bytes(4)))
    assert not wire.served.outgoing.size
