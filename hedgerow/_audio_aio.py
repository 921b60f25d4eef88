"""The audio service's asyncio client."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from inspect import isawaitable
from typing import Any

from hedgerow import _audio_messages as messages
from hedgerow._base_aio import AsyncEventStream, AsyncServiceClient
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._sending_aio import AsyncDuplexStream
from hedgerow._speech import AudioFormat, Heard, Policy, Recording, Segment, SpeechModel, Transcription
from hedgerow._tls import Tls
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc


class AsyncAudioClient(AsyncServiceClient):
    """An audio service, over one pooled connection that is opened when first used.

    Safe to share between tasks of one loop.
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

    async def transcribe(
        self,
        audio: Media,
        *,
        language: str | None = None,
        words: bool = False,
        on_recording: Callable[[Recording], Any] | None = None,
        on_segment: Callable[[Segment], Any] | None = None,
        budget_ms: int = messages.DEFAULT_BUDGET_MS,
    ) -> Transcription:
        """What a recording says: the bytes of a WAV, FLAC, MP3 or Ogg Opus file, or its path. It is sent in pieces.

        `language` is ISO 639-1; with `words`, segments carry the time of each. The callbacks are functions or
        coroutine functions: `on_recording` once the file is decoded, `on_segment` with each segment as it is done.
        """
        notices, result = messages.Notices(on_recording, on_segment), None
        requests, timeout_s = messages.recording(audio, language, words), budget_ms / 1000
        call = self._stub.Transcribe(timeout=timeout_s, metadata=self._peer.metadata())
        incoming = messages.IncomingRecording(self._peer, timeout_s)
        async with AsyncDuplexStream(call, messages.one_by_one(requests), incoming) as events:
            async for event in events:
                if isawaitable(told := notices.notify(event)):
                    await told
                result = event
        assert isinstance(result, Transcription)  # a stream without its summary raises
        return result

    def transcribe_stream(
        self,
        audio: AsyncIterable[bytes],
        *,
        format: AudioFormat = AudioFormat(),  # noqa: B008  # frozen
        language: str | None = None,
        policy: Policy | None = None,
        pause_ms: int | None = None,
    ) -> AsyncEventStream[Heard]:
        """Text while it is spoken. `audio` gives blocks of any length as they are recorded, in `format`; `policy` says
        when a word counts as sure, `pause_ms` (100 to 5,000) closes a segment.
        """
        opening = messages.live_opening(format, language, policy, pause_ms)
        call = self._stub.TranscribeStream(metadata=self._peer.metadata())
        requests = messages.live_aio(opening, audio, format)
        return AsyncDuplexStream(call, requests, messages.IncomingSpeech(self._peer))

    async def model(self) -> SpeechModel:
        """The model, and how busy it is."""
        request = audio_pb2.GetModelRequest()
        return messages.model(await self._call(self._stub.GetModel, request, messages.MODEL_TIMEOUT_S))
