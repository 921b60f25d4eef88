"""A scripted audio service: it plays back words instead of listening."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hedgerow.audio.v1 import audio_pb2 as pb
from hedgerow.audio.v1 import audio_pb2_grpc
from tests.integration.scripted import Heard, Scripted, serving


class ScriptedAudio(Scripted, audio_pb2_grpc.AudioServiceServicer):
    """Plays responses."""

    Transcribe = TranscribeStream = Scripted.talk
    GetModel = Scripted.reply


@asynccontextmanager
async def serve_audio() -> AsyncIterator[ScriptedAudio]:
    """A scripted audio service on a free loopback port; its `target` says which."""
    async with serving(ScriptedAudio(), audio_pb2_grpc.add_AudioServiceServicer_to_server) as audio:
        yield audio


def word(text: str, start_s: float, stability: float = 1.0) -> pb.Word:
    return pb.Word(text=text, start_s=start_s, end_s=start_s + 0.25, probability=0.75, stability=stability)


def segment(index: int, text: str, *words: pb.Word) -> pb.Segment:
    return pb.Segment(index=index, start_s=2 * index, end_s=2 * index + 1.5, text=text, words=words)


def recording(*segments: pb.Segment) -> list[object]:
    """The transcript of a recording, once all of it has arrived."""
    found = pb.Recording(format="WAV", sample_rate_hz=16_000, channels=1, duration_s=4)
    summary = pb.TranscribeSummary(
        text=" ".join(each.text for each in segments),
        audio_s=4,
        speech_s=3,
        busy_s=0.5,
        model="demo-whisper",
        language="en",
    )
    return [
        Heard(),
        pb.TranscribeResponse(recording=found),
        *(pb.TranscribeResponse(segment=each) for each in segments),
        pb.TranscribeResponse(summary=summary),
    ]


def live(*segments: pb.Segment) -> list[object]:
    """The transcript during speech: for each segment its first word, confirmed and not, then all of it."""
    events: list[object] = []
    for each in segments:
        first, *_ = each.text.split()
        partial = pb.Partial(index=each.index, text=each.text, words=each.words, confirmed=1, audio_s=1)
        events += [
            pb.TranscribeStreamResponse(speech_started=pb.SpeechStarted(at_s=each.start_s)),
            pb.TranscribeStreamResponse(partial=pb.Partial(index=each.index, text=first, audio_s=0.5)),
            pb.TranscribeStreamResponse(partial=partial),
            pb.TranscribeStreamResponse(segment=each),
        ]
    text = " ".join(each.text for each in segments)
    end = pb.StreamSummary(text=text, audio_s=4, speech_s=3, busy_s=0.5, model="demo-whisper")
    return [Heard(2), *events, Heard(), pb.TranscribeStreamResponse(summary=end)]
