"""Recordings that the audio service transcribes with a scripted model, as its clients see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hedgerow.audio.v1 import audio_pb2
from services.audio.errors import GaveWay, Idle, RecordingsFull
from services.runtime.errors import InvalidInput, NotSupported, TooLate, Unavailable
from tests.unit.audio.clients import START, file, refusal
from tests.unit.audio.scripted import call, sent
from tests.unit.audio.sounds import encoded
from tests.waiting import until


async def test_a_recording_comes_back_as_what_it_is_its_segments_and_an_account(service: START):
    running = await service()
    first, *segments, last = await running.transcribe(file(encoded(3, 44_100, 2, "FLAC")))
    assert first.recording == audio_pb2.Recording(format="FLAC", sample_rate_hz=44_100, channels=2, duration_s=3)
    assert [(reply.segment.index, reply.segment.text) for reply in segments] == [(0, "w0."), (1, "w1."), (2, "w2.")]
    assert [(reply.segment.start_s, reply.segment.end_s) for reply in segments] == [(0, 0.5), (1, 1.5), (2, 2.5)]
    assert not segments[0].segment.words
    summary = last.summary
    assert (summary.text, summary.model) == ("w0. w1. w2.", "scripted")
    assert (summary.audio_s, summary.speech_s) == pytest.approx((3, 1.5))
    assert summary.busy_s > 0


async def test_a_segment_is_sent_before_the_next_one_is_worked_on(service: START):
    running = await service()
    replies: Any = running.servicer.Transcribe(sent(file(encoded(3))), call())
    await anext(replies)
    assert (await anext(replies)).segment.text == "w0."
    assert running.recognizer.steps == 1
    await replies.aclose()


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "data: at least 1 byte, got none"),
        (file(b""), "data: at least 1 byte, got none"),
        (file(bytes(100)), "data: WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A, got bytes that begin 00000000"),
        (file(encoded(1), language="xx"), "options.language: one that the model knows (de, en…), got xx"),
        ([*file(encoded(1)), *file(b"more")], "options: only in the first message, got in a later one"),
        (file(bytes(5_000)), "data: at most 4096 bytes, got 5000 bytes or more"),
        (file(encoded(3)), "data: at most 2 s, got 3.0 s"),
    ],
)
async def test_a_recording_that_cannot_be_served_is_refused(
    service: START, requests: list[audio_pb2.TranscribeRequest], message: str
):
    limits = {"max_file_bytes": 4_096 if "4096" in message else 10**6, "max_duration_s": 2}
    assert await refusal((await service(**limits)).transcribe(requests)) == message


async def test_one_recording_too_many_is_refused(service: START):
    running, closed = await service(max_recordings=1), asyncio.Event()
    first: Any = running.servicer.Transcribe(sent(file(encoded(1)), then=closed), call())
    waiting = asyncio.create_task(anext(first))
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(RecordingsFull):
        await running.transcribe(file(encoded(1)))
    closed.set()
    await waiting
    await first.aclose()
    assert await running.transcribe(file(encoded(1)))


async def test_a_tenant_with_all_recordings_keeps_no_other_out(service: START):
    running = await service(max_recordings=2)
    running.recognizer.going.clear()
    first, latest = (asyncio.create_task(running.transcribe(file(encoded(3)), tenant="a")) for _ in range(2))
    await until(lambda: len(running.admission._recordings) == 2)
    other = asyncio.create_task(running.transcribe(file(encoded(1)), tenant="b"))
    await until(lambda: "b" in {recording.tenant for recording in running.admission._recordings})
    running.recognizer.going.set()
    with pytest.raises(GaveWay):
        await latest
    assert (await other)[-1].HasField("summary")
    assert (await first)[-1].HasField("summary")


async def test_a_recording_beyond_its_deadline_is_late_and_stops(service: START):
    running = await service()
    running.recognizer.going.clear()
    with pytest.raises(TooLate):
        await running.transcribe(file(encoded(5)), seconds=0.5)
    under_way = running.recognizer.began.is_set()  # not on a machine that is too busy to get there in time
    running.recognizer.going.set()
    assert await running.transcribe(file(encoded(1)))
    assert running.recognizer.steps == under_way + 1, "the running step and the next call's step"


async def test_a_recording_stops_when_its_caller_cancels(service: START):
    running = await service()
    running.recognizer.going.clear()
    replies = asyncio.create_task(running.transcribe(file(encoded(50))))
    await until(running.recognizer.began.is_set)
    replies.cancel()
    await asyncio.wait([replies])
    running.recognizer.going.set()
    assert len(await running.transcribe(file(encoded(2)))) == 4
    assert running.recognizer.steps == 3


async def test_a_client_that_stops_sending_its_file_is_let_go(service: START):
    running = await service(idle_timeout_ms=100)

    async def beats() -> AsyncIterator[audio_pb2.TranscribeRequest]:
        for request in file(b"RIFF"):
            yield request
        while True:
            await asyncio.sleep(0.01)
            yield audio_pb2.TranscribeRequest()

    for requests in (sent(file(b"RIFF"), asyncio.Event()), beats()):
        with pytest.raises(Idle):
            await asyncio.wait_for(anext(running.servicer.Transcribe(requests, call())), 5)


async def test_a_translation_is_english_and_says_what_was_spoken(service: START):
    running = await service()
    _, segment, last = await running.transcribe(file(encoded(1), translate=True))
    assert (segment.segment.text, segment.segment.language, last.summary.language) == ("english0.", "en", "de")
    running.recognizer.translates = False
    with pytest.raises(NotSupported, match="translate: a model of several languages, got scripted"):
        await running.transcribe(file(encoded(1), translate=True))


async def test_a_prompt_reaches_the_model_and_has_a_limit(service: START):
    running = await service()
    _, segment, _ = await running.transcribe(file(encoded(1), prompt="Hedgerow"))
    assert segment.segment.text == "Hedgerow0."
    with pytest.raises(InvalidInput, match=r"options\.prompt: at most 4096 characters, got 4097"):
        await running.transcribe(file(encoded(1), prompt="é" * 4_097))


@pytest.mark.parametrize(("asked", "language"), [("", "de"), ("en", "en")])
async def test_a_recording_has_language_and_words_where_requested(service: START, asked: str, language: str):
    _, segment, last = await (await service()).transcribe(file(encoded(1), language=asked, words=True))
    assert (segment.segment.language, last.summary.language) == (language, language)
    (word,) = segment.segment.words
    assert (word.text, word.end_s, word.stability) == ("w0.", 0.5, 1)
    assert word.probability == pytest.approx(0.9)


async def test_recordings_are_decoded_in_batches_only_while_no_stream_is_open(service: START):
    running = await service(batch_windows=3)
    await running.transcribe(file(encoded(1)))
    with running.admission.stream("windows"):
        await running.transcribe(file(encoded(1)))
    assert running.recognizer.batches == [3, 1]


async def test_a_recording_has_a_time_limit_that_follows_its_length(service: START):
    running = await service(recording_base_ms=100, recording_time_factor=0.1)
    running.recognizer.going.clear()
    with pytest.raises(TooLate, match=r"the time limit of 0 s \(0.1 s \+ 0.1 × 2 s of audio\)"):
        await running.transcribe(file(encoded(2)))


@pytest.mark.parametrize("grace", [{"grace_ms": 0}, {"grace_ms": 4_000, "lame_duck_ms": 4_000}])
async def test_a_recording_that_outlasts_the_grace_period_ends_as_unavailable(service: START, grace: dict[str, int]):
    running = await service(**grace)
    replies = running.servicer.Transcribe(sent(file(encoded(9))), call())
    assert [(await anext(replies)).WhichOneof("kind") for _ in range(2)] == ["recording", "segment"]
    running.servicer.drain()
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await anext(replies)
    assert running.recognizer.steps == 1
