"""When events of an answer leave, and with which others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.event_writer import EventWriter
from services.runtime.errors import Exhausted
from tests.clock import loop_clock

pytestmark = pytest.mark.paused
STAGE = pb.Event(stage=pb.Stage(name="cache"))
TEXT = pb.Event(delta=pb.TextDelta(text="Paris."))
SENDING_S = 1.0  # one message, to a client that reads slowly
Sent = list[tuple[float, list[str | None]]]


@asynccontextmanager
async def writing(sending_s: float = SENDING_S, *late: pb.Event) -> AsyncIterator[tuple[EventWriter, Sent]]:
    """The writer of an answer, and its messages: when each left, and the kinds of its events."""
    writer, messages, began = EventWriter(pb.Accepted), [], loop_clock()

    async def send(message: pb.GenerateResponse) -> None:
        messages.append((round(loop_clock() - began, 4), [event.WhichOneof("kind") for event in message.events]))
        await asyncio.sleep(sending_s)

    writer.open(send, lambda: late)
    yield writer, messages
    await writer.flush()
    writer.close()


async def test_the_plan_leaves_at_once_and_ended_stages_wait_two_milliseconds_for_a_text() -> None:
    async with writing(sending_s=0) as (writer, messages):
        await asyncio.sleep(0.001)
        writer.note(STAGE)
        await asyncio.sleep(0.003)
        writer.write(TEXT)
    assert messages == [(0.0, ["accepted"]), (0.003, ["stage"]), (0.004, ["delta"])]
    async with writing(sending_s=0) as (writer, messages):
        await asyncio.sleep(0.001)
        writer.note(STAGE)
        writer.write(TEXT)
    assert messages == [(0.0, ["accepted"]), (0.001, ["stage", "delta"])]


async def test_events_during_a_send_leave_in_the_next_message() -> None:
    async with writing() as (writer, messages):
        for _ in range(4):
            writer.write(TEXT)
            await asyncio.sleep(0.4)
    assert messages == [(0.0, ["accepted", "delta"]), (1.0, ["delta", "delta"]), (2.0, ["delta"])]


async def test_text_that_comes_fast_leaves_every_two_milliseconds_and_its_end_at_once() -> None:
    async with writing(sending_s=0) as (writer, messages):
        for _ in range(10):
            writer.write(TEXT)
            await writer.flow()
            await asyncio.sleep(0.0005)
    assert [(at, len(kinds)) for at, kinds in messages] == [(0.0, 2), (0.002, 3), (0.004, 4), (0.005, 2)]


async def test_events_written_together_are_in_one_message() -> None:
    async with writing() as (writer, messages):
        with writer.together() as start:
            assert start == 0
            writer.write(TEXT)
            await asyncio.sleep(5)
            writer.events.insert(start, STAGE)
        await asyncio.sleep(1)
    assert messages == [(5.0, ["accepted", "stage", "delta"])]


async def test_a_stage_that_flushes_waits_for_its_client() -> None:
    async with writing() as (writer, messages):
        for _ in range(3):
            writer.write(TEXT)
            await writer.flush()
    assert messages == [(0.0, ["accepted", "delta"]), (1.0, ["delta"]), (2.0, ["delta"])]


async def test_nothing_comes_after_the_last_event() -> None:
    async with writing(SENDING_S, pb.Event(patch=pb.Patch())) as (writer, messages):
        writer.write(TEXT)
        await asyncio.sleep(SENDING_S / 2)
        await writer.end(pb.Event(final=pb.Final()))  # while the first message is still being sent
    assert messages == [(0.0, ["accepted", "delta", "patch"]), (1.0, ["final"])]


async def test_an_error_of_sending_is_raised_by_the_next_flush() -> None:
    async def send(message: pb.GenerateResponse) -> None:
        raise Exhausted("the credential is over")

    writer = EventWriter(pb.Accepted)
    writer.open(send, lambda: ())
    await asyncio.sleep(1)
    with pytest.raises(Exhausted):
        await writer.flush()
    writer.close()


async def test_an_answer_that_no_client_reads_keeps_no_events() -> None:
    writer = EventWriter(pb.Accepted)
    writer.open(None, lambda: ())
    writer.write(TEXT)
    await writer.flush()
    writer.close()
    assert writer.events == []
