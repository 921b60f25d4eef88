"""Requests and responses of the audio clients. No I/O but reading files; both clients share it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from hedgerow._errors import Internal
from hedgerow._fields import one_of, set_fields
from hedgerow._media import pieces
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._request import audio_format
from hedgerow._speech import (
    AudioFormat,
    Behind,
    Heard,
    Partial,
    Recording,
    Segment,
    SpeechModel,
    SpeechStarted,
    SpeechSummary,
    Transcription,
    Word,
)
from hedgerow._status import from_rpc_error
from hedgerow.audio.v1 import audio_pb2 as pb

DEFAULT_TARGET = "127.0.0.1:50056"
DEFAULT_BUDGET_MS = 3_600_000  # a long recording takes long; a service that is gone is noticed within seconds anyway
MODEL_TIMEOUT_S = 10.0

_POLICIES = {"windows": pb.POLICY_WINDOWS, "local-agreement": pb.POLICY_LOCAL_AGREEMENT}


def recording(audio: Media, language: str | None, words: bool, prompt: str | None) -> Iterator[pb.TranscribeRequest]:
    """A recording in pieces; an invalid one is refused at once."""
    opening = pb.TranscribeRequest()
    set_fields(opening.options, "", language=language, words=words, prompt=prompt)
    return _recording(opening, pieces("audio", audio))


def _recording(opening: pb.TranscribeRequest, parts: Iterable[bytes]) -> Iterator[pb.TranscribeRequest]:
    yield opening
    for part in parts:
        yield pb.TranscribeRequest(data=part)


def live_opening(
    form: AudioFormat, language: str | None, policy: str | None, pause_ms: int | None
) -> pb.TranscribeStreamRequest:
    """How to listen."""
    options = pb.StreamOptions(format=audio_format(form))
    set_fields(options, "", language=language, pause_ms=pause_ms)
    if policy is not None:
        options.policy = _POLICIES[one_of("policy", policy, _POLICIES)]
    return pb.TranscribeStreamRequest(options=options)


class _UntilSummary:
    """A stream that ends with its summary, as it is read."""

    def __init__(self, peer: Peer, timeout_s: float | None = None):
        self._peer, self._timeout_s = peer, timeout_s
        self._over = False

    def failed(self, error: grpc.RpcError) -> None:
        """Raise what gRPC raised as a typed error, unless everything had come by then."""
        if not self._over:
            self._over = True
            raise from_rpc_error(error, self._peer, self._timeout_s) from error

    def ended(self) -> None:
        """Raise when the service said goodbye too early."""
        if not self._over:
            self._over = True
            raise Internal("the stream ended without a summary", reason="NO_FINAL")


class IncomingRecording(_UntilSummary):
    """What becomes of a recording, as it is read: what was found in the file, segments, and all of it at the end."""

    def __init__(self, peer: Peer, timeout_s: float):
        super().__init__(peer, timeout_s)
        self._recording: Recording | None = None
        self._segments: list[Segment] = []

    def events(self, message: pb.TranscribeResponse) -> list[Recording | Segment | Transcription]:
        """The event of a message."""
        match message.WhichOneof("kind"):
            case "recording":
                found = message.recording
                self._recording = Recording(found.format, found.sample_rate_hz, found.channels, found.duration_s)
                return [self._recording]
            case "segment":
                self._segments.append(_segment(message.segment))
                return self._segments[-1:]  # type: ignore[return-value]
            case "summary":
                self._over = True
                return [self._whole(message.summary)]
        return []

    def _whole(self, summary: pb.TranscribeSummary) -> Transcription:
        return Transcription(
            text=summary.text,
            segments=tuple(self._segments),
            audio_s=summary.audio_s,
            speech_s=summary.speech_s,
            busy_s=summary.busy_s,
            model=summary.model,
            recording=self._recording,
            language=summary.language,
        )


class Notices:
    """Callbacks of `transcribe`."""

    def __init__(self, on_recording: Callable[[Recording], Any] | None, on_segment: Callable[[Segment], Any] | None):
        self._on_recording, self._on_segment = on_recording, on_segment

    def notify(self, event: Recording | Segment | Transcription) -> Any:
        """Call what is due, and return what the call returned: the asyncio client awaits coroutines."""
        if isinstance(event, Recording) and self._on_recording:
            return self._on_recording(event)
        if isinstance(event, Segment) and self._on_segment:
            return self._on_segment(event)
        return None


class IncomingSpeech(_UntilSummary):
    """Live audio's text as it is read."""

    def events(self, message: pb.TranscribeStreamResponse) -> list[Heard]:
        """The transcript so far."""
        match message.WhichOneof("kind"):
            case "speech_started":
                return [SpeechStarted(message.speech_started.at_s)]
            case "partial":
                said = message.partial
                return [Partial(said.index, said.text, _words(said.words), said.confirmed, said.audio_s)]
            case "segment":
                return [_segment(message.segment)]
            case "behind":
                return [Behind(message.behind.behind_s)]
            case "summary":
                self._over = True
                end = message.summary
                return [SpeechSummary(end.text, end.audio_s, end.speech_s, end.busy_s, end.model, end.language)]
        return []


def model(message: pb.GetModelResponse) -> SpeechModel:
    return SpeechModel(
        message.name, message.device, message.compute_type, message.streams, message.max_streams, message.load
    )


def _segment(message: pb.Segment) -> Segment:
    words = _words(message.words)
    return Segment(message.index, message.start_s, message.end_s, message.text, words, message.language)


def _words(messages: Iterable[pb.Word]) -> tuple[Word, ...]:
    return tuple(Word(each.text, each.start_s, each.end_s, each.probability, each.stability) for each in messages)
