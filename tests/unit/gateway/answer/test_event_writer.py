"""When events of an answer leave, and with which others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import EventWriter
from services.runtime.errors import Exhausted
from tests.clock import loop_clock, on_paused_loop

STAGE = pb.Event(stage=pb.Stage(name="cache"))
TEXT = pb.Event(delta=pb.TextDelta(text="Paris."))
SENDING_S = 1.0  # one message, to a client that reads slowly
Write = Callable[[EventWriter], Awaitable[None]]
Sent = list[tuple[float, list[str | None]]]


def sent(write: Write, sending_s: float = SENDING_S) -> Sent:
    """When messages left that a stage's `write` made, and what was in each."""

    async def main() -> Sent:
        writer, messages, began = EventWriter(pb.Accepted), [], loop_clock()

        async def send(message: pb.GenerateResponse) -> None:
            messages.append((round(loop_clock() - began, 4), [event.WhichOneof("kind") for event in message.events]))
            await asyncio.sleep(sending_s)

        writer.open(send, lambda: ())
        await write(writer)
        await writer.flush()
        writer.close()
        return messages

    return on_paused_loop(main())


def test_the_plan_leaves_at_once_and_ended_stages_wait_two_milliseconds_for_a_text() -> None:
    async def late(writer: EventWriter) -> None:
        await asyncio.sleep(0.001)
        writer.note(STAGE)
        await asyncio.sleep(0.003)
        writer.write(TEXT)

    async def soon(writer: EventWriter) -> None:
        await asyncio.sleep(0.001)
        writer.note(STAGE)
        writer.write(TEXT)

    assert sent(late, sending_s=0) == [(0.0, ["accepted"]), (0.003, ["stage"]), (0.004, ["delta"])]
    assert sent(soon, sending_s=0) == [(0.0, ["accepted"]), (0.001, ["stage", "delta"])]


def test_what_comes_while_a_message_is_sent_leaves_in_the_next() -> None:
    async def write(writer: EventWriter) -> None:
        for _ in range(4):
            writer.write(TEXT)
            await asyncio.sleep(0.4)

    assert sent(write) == [(0.0, ["accepted", "delta"]), (1.0, ["delta", "delta"]), (2.0, ["delta"])]


def test_text_that_comes_fast_leaves_every_two_milliseconds_and_its_end_at_once() -> None:
    async def write(writer: EventWriter) -> None:
        for _ in range(10):
            writer.write(TEXT)
            await writer.flow()
            await asyncio.sleep(0.0005)

    told = [(at, len(kinds)) for at, kinds in sent(write, sending_s=0)]
    assert told == [(0.0, 2), (0.002, 3), (0.004, 4), (0.005, 2)]


def test_what_belongs_together_is_never_cut_in_two() -> None:
    async def write(writer: EventWriter) -> None:
        with writer.together() as start:
            assert start == 0
            writer.write(TEXT)
            await asyncio.sleep(5)
            writer.events.insert(start, STAGE)

    assert sent(write) == [(5.0, ["accepted", "stage", "delta"])]


def test_a_stage_that_flushes_waits_for_its_client() -> None:
    async def write(writer: EventWriter) -> None:
        for _ in range(3):
            writer.write(TEXT)
            await writer.flush()

    assert sent(write) == [(0.0, ["accepted", "delta"]), (1.0, ["delta"]), (2.0, ["delta"])]


def test_nothing_comes_after_the_last_event() -> None:
    async def main() -> list[list[str | None]]:
        writer, messages = EventWriter(pb.Accepted), []
        final, patch = pb.Event(final=pb.Final()), pb.Event(patch=pb.Patch())

        async def send(message: pb.GenerateResponse) -> None:
            messages.append([event.WhichOneof("kind") for event in message.events])
            await asyncio.sleep(SENDING_S)

        writer.open(send, lambda: [patch])
        writer.write(TEXT)
        await asyncio.sleep(SENDING_S / 2)
        await writer.end(final)  # while the first message is still being sent
        writer.close()
        return messages

    assert on_paused_loop(main()) == [["accepted", "delta", "patch"], ["final"]]


def test_what_sending_raises_ends_the_stage_that_flushes_next() -> None:
    async def main() -> None:
        writer = EventWriter(pb.Accepted)

        async def send(message: pb.GenerateResponse) -> None:
            raise Exhausted("the credential is over")

        writer.open(send, lambda: ())
        await asyncio.sleep(1)
        with pytest.raises(Exhausted):
            await writer.flush()
        writer.close()

    on_paused_loop(main())


def test_an_answer_that_no_client_reads_keeps_no_events() -> None:
    async def main() -> list[pb.Event]:
        writer = EventWriter(pb.Accepted)
        writer.open(None, lambda: ())
        writer.write(TEXT)
        await writer.flush()
        writer.close()
        return writer.events

    assert on_paused_loop(main()) == []
