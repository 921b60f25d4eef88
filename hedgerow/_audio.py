"""The audio service's client for programs without an event loop."""

# Written by `make sync` from _audio_aio.py; change that.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hedgerow import _audio_messages as messages
from hedgerow._base import ServiceClient, run_callbacks
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._request import live_blocks
from hedgerow._sending import DuplexStream
from hedgerow._speech import AudioFormat, Heard, Policy, Recording, Segment, SpeechModel, Transcription
from hedgerow._streams import EventStream
from hedgerow._tls import Tls
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc


class AudioClient(ServiceClient):
    """An audio service, over one pooled connection that is opened when first used.

    Safe to share between threads.
    """

    def __init__(
        self,
        target: str = messages.DEFAULT_TARGET,
        *,
        api_key: str | None = None,
        tls: Tls | None = None,
        allow_plaintext_key: bool = False,
    ):
        peer = Peer(target, api_key, "audio service", tls, allow_plaintext_key)
        super().__init__(peer, audio_pb2_grpc.AudioServiceStub)

    def transcribe(
        self,
        audio: Media,
        *,
        language: str | None = None,
        words: bool = False,
        prompt: str | None = None,
        on_recording: Callable[[Recording], Any] | None = None,
        on_segment: Callable[[Segment], Any] | None = None,
        budget_ms: int = messages.DEFAULT_BUDGET_MS,
    ) -> Transcription:
        """Transcribe a recording: the bytes of a WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A file, or its path.

        `language` is ISO 639-1; None: detected. `words` adds the times of words. `prompt` is text before the recording,
        or names as they are spelled, in the transcript's language. `on_recording` is called when the file is decoded,
        `on_segment` with each finished segment. Callbacks are called in the caller's thread.
        """
        notices, result = messages.Notices(on_recording, on_segment), None
        requests, timeout_s = messages.recording(audio, language, words, prompt), budget_ms / 1000
        call = DuplexStream.begin(
            self._stub.Transcribe,
            _one_by_one(requests),
            messages.IncomingRecording(self._peer, timeout_s),
            self._peer.metadata(),
            timeout_s,
        )
        with call as events:
            for event in events:
                run_callbacks([notices.notify(event)])
                result = event
        assert isinstance(result, Transcription)  # a stream without its summary raises
        return result

    def transcribe_stream(
        self,
        audio: Iterable[bytes],
        *,
        format: AudioFormat = AudioFormat(),  # noqa: B008  # frozen
        language: str | None = None,
        policy: Policy | None = None,
        pause_ms: int | None = None,
    ) -> EventStream[Heard]:
        """Transcribe live speech. `audio` yields blocks of any length as they are recorded, in `format`, and is read in
        a thread of its own. `policy` decides when a word is confirmed; a pause of `pause_ms` (100 to 5,000) ends a
        segment.
        """
        opening = messages.live_opening(format, language, policy, pause_ms)
        requests, incoming = _live(opening, audio, format), messages.IncomingSpeech(self._peer)
        return DuplexStream.begin(self._stub.TranscribeStream, requests, incoming, self._peer.metadata())

    def model(self) -> SpeechModel:
        """The model and its load."""
        request = audio_pb2.GetModelRequest()
        return messages.model(self._call(self._stub.GetModel, request, messages.MODEL_TIMEOUT_S))


def _one_by_one(
    requests: Iterable[audio_pb2.TranscribeRequest],
) -> Iterator[audio_pb2.TranscribeRequest]:
    yield from requests


def _live(
    opening: audio_pb2.TranscribeStreamRequest, audio: Iterable[bytes], form: AudioFormat
) -> Iterator[audio_pb2.TranscribeStreamRequest]:
    """The messages of live audio, to the service."""
    yield opening
    for block in audio:
        for part in live_blocks(block, form):
            yield audio_pb2.TranscribeStreamRequest(audio=part)
