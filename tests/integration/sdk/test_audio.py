"""The audio clients against a scripted service over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import hedgerow
from hedgerow.audio.v1 import audio_pb2 as pb
from tests.integration.scripted import Heard, Hold, Refusal
from tests.integration.scripted_audio import ScriptedAudio, live, recording, segment, serve_audio, word
from tests.integration.sdk.blocking import blocking

FOUND = hedgerow.Recording("WAV", 16_000, 1, 4)
FIRST = hedgerow.Segment(0, 0, 1.5, "Which city?", ())


@pytest.fixture
async def audio() -> AsyncIterator[ScriptedAudio]:
    async with serve_audio() as served:
        yield served


@pytest.fixture
async def client(audio: ScriptedAudio) -> AsyncIterator[hedgerow.AsyncAudioClient]:
    async with hedgerow.AsyncAudioClient(audio.target, api_key="secret") as connected:
        yield connected


async def said(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def test_a_recording_is_sent_in_pieces_and_written_down(
    audio: ScriptedAudio, client: hedgerow.AsyncAudioClient, tmp_path: Path
) -> None:
    file = tmp_path / "talk.wav"
    file.write_bytes(b"x" * 600_000)
    audio.script = recording(segment(0, "Which city?"), segment(1, "And why?", word("And", 2), word("why?", 2.5)))
    notices: list[object] = []

    async def on_segment(heard: hedgerow.Segment) -> None:
        notices.append(heard)

    got = await client.transcribe(
        file, language="en", words=True, prompt="Bern", on_recording=notices.append, on_segment=on_segment
    )
    assert (got.text, got.audio_s, got.speech_s, got.busy_s, got.model) == (
        "Which city? And why?", 4, 3, 0.5, "demo-whisper",
    )  # fmt: skip
    assert notices == [FOUND, *got.segments]
    assert got.recording == FOUND
    assert got.segments[0] == FIRST
    assert got.segments[1].words[1] == hedgerow.Word("why?", 2.5, 2.75, 0.75, 1)
    opening, *pieces = audio.requests
    assert opening == pb.TranscribeRequest(options=pb.TranscribeOptions(language="en", words=True, prompt="Bern"))
    assert b"".join(piece.data for piece in pieces) == file.read_bytes()
    assert len(pieces) == 3
    assert audio.metadata["authorization"] == "Bearer secret"


async def test_a_refusal_in_the_middle_of_sending_is_a_typed_error(
    audio: ScriptedAudio, client: hedgerow.AsyncAudioClient
) -> None:
    audio.script = [Heard(2), Refusal("INVALID_ARGUMENT", "data: not audio", "INVALID_INPUT")]
    with pytest.raises(hedgerow.InvalidArgument, match="data: not audio"):
        await client.transcribe(b"x" * 20_000_000)
    with pytest.raises(hedgerow.InvalidArgument, match="data: not audio"):
        await blocking(hedgerow.AudioClient(audio.target), lambda client: client.transcribe(b"x" * 20_000_000))


async def test_a_stream_that_ends_without_its_summary_is_an_error(
    audio: ScriptedAudio, client: hedgerow.AsyncAudioClient
) -> None:
    audio.script = recording(segment(0, "Which city?"))[:-1]
    with pytest.raises(hedgerow.Internal, match="without a summary"):
        await client.transcribe(b"wav")
    audio.script = live(segment(0, "Which city?"))[:-1]
    with pytest.raises(hedgerow.Internal, match="without a summary"):
        async for _ in client.transcribe_stream(said(b"\0\0")):
            pass


async def test_words_come_while_they_are_spoken(audio: ScriptedAudio, client: hedgerow.AsyncAudioClient) -> None:
    behind = pb.TranscribeStreamResponse(behind=pb.Behind(behind_s=1.5))
    first, *rest = live(segment(0, "Which city?", word("Which", 0.25), word("city?", 0.5, 0.5)))
    audio.script = [first, behind, *rest]
    stream = client.transcribe_stream(
        said(b"\0\0"), format=hedgerow.AudioFormat(sample_rate_hz=8_000), language="en", policy="windows", pause_ms=400
    )
    words = (hedgerow.Word("Which", 0.25, 0.5, 0.75, 1), hedgerow.Word("city?", 0.5, 0.75, 0.75, 0.5))
    assert [event async for event in stream] == [
        hedgerow.Behind(1.5),
        hedgerow.SpeechStarted(0),
        hedgerow.Partial(0, "Which", (), 0, 0.5),
        hedgerow.Partial(0, "Which city?", words, 1, 1),
        hedgerow.Segment(0, 0, 1.5, "Which city?", words),
        hedgerow.SpeechSummary("Which city?", 4, 3, 0.5, "demo-whisper"),
    ]
    form = pb.AudioFormat(encoding=pb.ENCODING_PCM_S16LE, sample_rate_hz=8_000, channels=1)
    options = pb.StreamOptions(format=form, language="en", policy=pb.POLICY_WINDOWS, pause_ms=400)
    assert audio.requests == [pb.TranscribeStreamRequest(options=options), pb.TranscribeStreamRequest(audio=b"\0\0")]


async def test_leaving_live_audio_ends_the_call(audio: ScriptedAudio, client: hedgerow.AsyncAudioClient) -> None:
    audio.script = [pb.TranscribeStreamResponse(speech_started=pb.SpeechStarted()), Hold()]
    async with client.transcribe_stream(said(b"\0\0")) as stream:
        await anext(stream)
    await asyncio.wait_for(audio.cancelled.wait(), 20)


async def test_the_model_says_how_busy_it_is(audio: ScriptedAudio, client: hedgerow.AsyncAudioClient) -> None:
    audio.script = [
        pb.GetModelResponse(name="demo-whisper", device="cpu", compute_type="int8", streams=1, max_streams=4, load=0.25)
    ]
    assert await client.model() == hedgerow.SpeechModel("demo-whisper", "cpu", "int8", 1, 4, 0.25)


async def test_the_sync_client_does_the_same(audio: ScriptedAudio) -> None:
    notices: list[object] = []

    def transcribe(client: hedgerow.AudioClient) -> hedgerow.Transcription:
        client.prewarm()
        return client.transcribe(b"x" * 600_000, on_recording=notices.append, on_segment=notices.append)

    audio.script = recording(segment(0, "Which city?"))
    got = await blocking(hedgerow.AudioClient(audio.target), transcribe)
    assert (got.text, got.segments, notices) == ("Which city?", (FIRST,), [FOUND, FIRST])
    assert sum(len(request.data) for request in audio.requests) == 600_000
