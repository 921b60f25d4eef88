"""Spoken conversations with a scripted gateway over a real connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import hedgerow
from hedgerow.audio.v1 import audio_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from tests.integration.scripted import Heard, Hold, Refusal
from tests.integration.scripted_gateway import (
    ScriptedGateway,
    accepted,
    deltas,
    final,
    spoken,
    transcript,
    turn,
)
from tests.integration.sdk.blocking import blocking
from tests.waiting import until

PARTS = ["SpeechStarted", "Transcript", "Transcript", "Accepted", "StageReport", "TextDelta", "TextDelta", "Final"]


async def said(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def saying() -> AsyncIterator[bytes]:
    """A speaker that does not stop."""
    yield b"\0\0"
    await asyncio.Event().wait()


async def test_each_event_of_a_conversation_comes_with_its_turn(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Heard(), *turn(0, "Which city?", "Pa", "ris."), *turn(1, "And of Spain?", "Mad", "rid.")]
    async with client.converse(said(b"\1\0", b"\2\0")) as conversation:
        events = [pair async for pair in conversation]
    assert [(number, type(event).__name__) for number, event in events] == [
        (number, part) for number in (0, 1) for part in PARTS
    ]
    assert events[0][1] == hedgerow.SpeechStarted(0.5)
    assert events[1][1] == hedgerow.Transcript("Which ci", 1, False)
    assert events[2][1] == hedgerow.Transcript("Which city?", 2, True)
    last = events[-1][1]
    assert isinstance(last, hedgerow.Final)
    assert last.answer.text == "Madrid."
    assert last.answer.timings.first_token_ms is not None


async def test_the_request_and_the_audio_format_are_sent_before_the_audio(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Heard()]
    form = hedgerow.AudioFormat("pcm_f32le", 48_000, 2)
    conversation = client.converse(
        said(b"12345678"), format=form, pause_ms=300, messages="Hello.", images=b"png", tier="fast", budget_ms=500
    )
    assert [pair async for pair in conversation] == []
    opening, audio = gateway.requests
    assert opening.options.request.messages[0].content == "Hello."
    assert [image.data for image in opening.options.request.images] == [b"png"]
    assert (opening.options.request.tier, opening.options.request.budget_ms) == (pb.TIER_FAST, 500)
    assert opening.options.pause_ms == 300
    assert opening.options.format == audio_pb2.AudioFormat(
        encoding=audio_pb2.ENCODING_PCM_F32LE, sample_rate_hz=48_000, channels=2
    )
    assert audio.audio == b"12345678"
    assert gateway.time_remaining_s is None  # people talk as long as they like


async def test_a_long_block_is_sent_in_parts_and_an_opus_packet_whole(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Heard()]
    async with client.converse(said(b"\0" * 200_000)) as conversation:
        assert [pair async for pair in conversation] == []
    assert [len(request.audio) for request in gateway.requests[1:]] == [65_536, 65_536, 65_536, 3_392]
    async with client.converse(said(b"\0" * 70_000), format=hedgerow.AudioFormat("opus")) as conversation:
        assert [pair async for pair in conversation] == []
    assert len(gateway.requests[-1].audio) == 70_000


async def test_interrupting_is_said_to_the_gateway_and_shows_as_an_event(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    answer = [spoken(answer=message) for message in (accepted(), *deltas("It is "))]
    gateway.script = [*answer, Heard(3), spoken(interrupted=pb.Interrupted(text="It is "))]
    events = []
    async with client.converse(saying()) as conversation:
        async for number, event in conversation:
            events.append((number, event))
            if isinstance(event, hedgerow.TextDelta):
                assert await conversation.interrupt()
        assert not await conversation.interrupt()  # it is over
    assert events[-1] == (0, hedgerow.Interrupted("It is "))
    assert any(request.HasField("interrupt") for request in gateway.requests)


async def test_interrupting_after_the_audio_has_ended_cannot_be_said_any_more(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Heard(), spoken(transcript=transcript("Hi.")), Hold()]
    async with client.converse(said(b"\0\0")) as conversation:
        await anext(conversation)
        assert not await conversation.interrupt()


async def test_a_turn_without_an_answer_does_not_end_the_conversation(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    problem = pb.BatchError(code="RESOURCE_EXHAUSTED", reason="SHED", message="too busy")
    gateway.script = [spoken(0, error=problem), *turn(1, "Which city?", "Paris.")]
    events = [pair async for pair in client.converse(said())]
    number, failed = events[0]
    assert number == 0
    assert isinstance(failed, hedgerow.TurnFailed)
    assert isinstance(failed.error, hedgerow.ResourceExhausted)
    assert (failed.error.reason, failed.error.message) == ("SHED", "too busy")
    assert isinstance(events[-1][1], hedgerow.Final)


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_turn_with_the_fixed_text_alone_has_failed_unless_that_is_allowed(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient, allowed: bool
) -> None:
    fixed = pb.GenerateResponse(
        events=[pb.Event(delta=pb.TextDelta(text="Ask again.")), pb.Event(final=final(degraded=["llm:template"]))]
    )
    gateway.script = [spoken(0, answer=fixed), *turn(1, "Which city?", "Paris.")]
    events = [event async for _, event in client.converse(said(), allow_fallback=allowed)]
    kinds = [type(event).__name__ for event in events]
    assert kinds == [*(["TextDelta", "Final"] if allowed else ["TurnFailed"]), *PARTS[:6], "Final"]
    if not allowed:
        assert isinstance(events[0], hedgerow.TurnFailed)
        assert events[0].error.reason == "BUDGET_TIMEOUT"


async def test_leaving_a_conversation_ends_the_call_and_the_sending_at_once(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [*turn(0, "Which city?", "Paris."), Hold()]
    before = asyncio.all_tasks()
    async with client.converse(saying()) as conversation:
        async for _ in conversation:
            break
    await asyncio.wait_for(gateway.cancelled.wait(), 20)
    assert "Sender" not in "".join(map(repr, asyncio.all_tasks() - before))


async def test_cancelling_the_task_that_listens_ends_the_call(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [spoken(speech_started=audio_pb2.SpeechStarted(at_s=1)), Hold()]
    begun = asyncio.Event()

    async def listen() -> None:
        async with client.converse(saying()) as conversation:
            async for _ in conversation:
                begun.set()

    task = asyncio.create_task(listen())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_an_error_of_the_callers_audio_is_raised_as_it_is(
    gateway: ScriptedGateway, client: hedgerow.AsyncClient
) -> None:
    gateway.script = [Hold()]

    async def unplugged() -> AsyncIterator[bytes]:
        yield b"\0\0"
        raise OSError("the microphone is gone")

    with pytest.raises(OSError, match="the microphone is gone"):
        async for _ in client.converse(unplugged()):
            pass
    await asyncio.wait_for(gateway.cancelled.wait(), 20)


async def test_a_refused_conversation_is_a_typed_error(gateway: ScriptedGateway, client: hedgerow.AsyncClient) -> None:
    gateway.script = [Refusal("INVALID_ARGUMENT", "audio: not configured", "INVALID_INPUT")]
    with pytest.raises(hedgerow.InvalidArgument, match="audio: not configured"):
        async for _ in client.converse(saying()):
            pass


async def test_an_invalid_conversation_is_refused_before_the_call(client: hedgerow.AsyncClient) -> None:
    with pytest.raises(hedgerow.InvalidArgument, match=r"format\.encoding: pcm_s16le, pcm_f32le or opus, got mp3"):
        client.converse(said(), format=hedgerow.AudioFormat("mp3"))  # type: ignore[arg-type]
    with pytest.raises(hedgerow.InvalidArgument, match=r"request: at most .* send shorter messages"):
        client.converse(said(), messages="x" * 5_000_000)


async def test_the_sync_client_interrupts_while_its_audio_waits(gateway: ScriptedGateway) -> None:
    gateway.script = [*turn(0, "Which city?", "Pa")[:-1], Heard(3), spoken(interrupted=pb.Interrupted(text="Pa"))]
    released = threading.Event()

    def quiet() -> Iterator[bytes]:
        yield b"\0\0"
        released.wait()

    def talk(client: hedgerow.Client) -> list[hedgerow.ConversationEvent]:
        events = []
        with client.converse(quiet()) as conversation:
            for _, event in conversation:
                events.append(event)
                if isinstance(event, hedgerow.TextDelta):
                    assert conversation.interrupt()
            assert not conversation.interrupt()
        return events

    try:
        events = await blocking(hedgerow.Client(gateway.target), talk)
        assert events[-1] == hedgerow.Interrupted("Pa")
    finally:
        released.set()
    assert any(request.HasField("interrupt") for request in gateway.requests)


async def test_leaving_a_sync_conversation_ends_the_call_and_its_thread(gateway: ScriptedGateway) -> None:
    gateway.script = [*turn(0, "Which city?", "Paris."), Hold()]
    stop = threading.Event()

    def speak() -> Iterator[bytes]:
        while not stop.wait(0.01):
            yield b"\0\0"

    def leave(client: hedgerow.Client) -> None:
        with client.converse(speak()) as conversation:
            next(conversation)

    try:
        await blocking(hedgerow.Client(gateway.target), leave)
        await asyncio.wait_for(gateway.cancelled.wait(), 20)
        await until(lambda: all(thread.name != "hedgerow-sending" for thread in threading.enumerate()))
    finally:
        stop.set()


async def test_an_error_of_the_sync_callers_audio_is_raised_as_it_is(gateway: ScriptedGateway) -> None:
    gateway.script = [Hold()]

    def unplugged() -> Iterator[bytes]:
        yield b"\0\0"
        raise OSError("the microphone is gone")

    with pytest.raises(OSError, match="the microphone is gone"):
        await blocking(hedgerow.Client(gateway.target), lambda client: list(client.converse(unplugged())))
