"""Recordings that a scripted audio service does not write down in time."""

from __future__ import annotations

import pytest

from hedgerow.audio.v1.audio_pb2 import TranscribeOptions
from hedgerow.channel import open_channel
from services.gateway.errors import Unfinished
from services.gateway.policies.baseline import LatencyBaseline, WorkBaseline
from services.gateway.upstream.media import AudioCalls
from services.runtime.errors import TooLate, Unavailable
from tests.integration.scripted import Hold
from tests.integration.scripted_audio import recording, segment, serve_audio


@pytest.mark.parametrize(
    ("before_it_is_silent", "each_s", "unfinished"),
    [
        pytest.param(0, 1.0, False, id="silent from the start"),
        pytest.param(2, 1.0, True, id="with too little time for four seconds of audio"),
        pytest.param(2, 0.001, False, id="silent for longer than such a recording takes"),
        pytest.param(3, 0.001, False, id="the same after its first segment"),
    ],
)
async def test_a_recording_is_unfinished_where_its_time_was_too_little_and_its_service_not_silent(
    before_it_is_silent: int, each_s: float, unfinished: bool
) -> None:
    work = WorkBaseline(LatencyBaseline(0.001), each_s)
    async with serve_audio() as audio, open_channel(audio.target) as channel:
        audio.script = [*recording(segment(0, "Long."))[:before_it_is_silent], Hold()]
        with pytest.raises(TooLate, match="audio: DEADLINE_EXCEEDED") as late:
            await AudioCalls(channel, work).transcribe(b"RIFF", 0.5, ())
    assert isinstance(late.value, Unfinished) is unfinished


async def test_a_transcript_without_its_summary_is_not_whole() -> None:
    work = WorkBaseline(LatencyBaseline(0.001), 1.0)
    async with serve_audio() as audio, open_channel(audio.target) as channel:
        client = AudioCalls(channel, work)
        audio.script = recording(segment(0, "Half."))[:-1]
        with pytest.raises(Unavailable, match="audio: ended without a summary"):
            await client.transcribe(b"RIFF", 5, ())
        replies = client.recording(b"RIFF", TranscribeOptions(), 5, ())
        with pytest.raises(Unavailable, match="audio: ended without a summary"):
            [None async for _ in replies]
