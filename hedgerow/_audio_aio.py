"""The audio service's asyncio client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import Any

from hedgerow import _audio_messages as messages
from hedgerow._base_aio import AsyncServiceClient, run_callbacks
from hedgerow._options import Media
from hedgerow._peer import Peer
from hedgerow._request import live_blocks
from hedgerow._sending_aio import AsyncDuplexStream
from hedgerow._speech import AudioFormat, Heard, Policy, Recording, Segment, SpeechModel, Transcription
from hedgerow._streams_aio import AsyncEventStream
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
        prompt: str | None = None,
        on_recording: Callable[[Recording], Any] | None = None,
        on_segment: Callable[[Segment], Any] | None = None,
        budget_ms: int = messages.DEFAULT_BUDGET_MS,
    ) -> Transcription:
        """Transcribe a recording: the bytes of a WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A file, or its path.

        `language` is ISO 639-1; None: detected. `words` adds the times of words. `prompt` is text before the recording,
        or names as they are spelled, in the transcript's language. `on_recording` is called when the file is decoded,
        `on_segment` with each finished segment. Callbacks are functions or coroutine functions.
        """
        notices, result = messages.Notices(on_recording, on_segment), None
        requests, timeout_s = messages.recording(audio, language, words, prompt), budget_ms / 1000
        call = AsyncDuplexStream.begin(
            self._stub.Transcribe,
            _one_by_one(requests),
            messages.IncomingRecording(self._peer, timeout_s),
            self._peer.metadata(),
            timeout_s,
        )
        async with call as events:
            async for event in events:
                await run_callbacks([notices.notify(event)])
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
        """Transcribe live speech. `audio` yields blocks of any length as they are recorded, in `format`, and is read in
        a task of its own. `policy` decides when a word is confirmed; a pause of `pause_ms` (100 to 5,000) ends a
        segment.
        """
        opening = messages.live_opening(format, language, policy, pause_ms)
        requests, incoming = _live(opening, audio, format), messages.IncomingSpeech(self._peer)
        return AsyncDuplexStream.begin(self._stub.TranscribeStream, requests, incoming, self._peer.metadata())

    async def model(self) -> SpeechModel:
        """The model and its load."""
        request = audio_pb2.GetModelRequest()
        return messages.model(await self._call(self._stub.GetModel, request, messages.MODEL_TIMEOUT_S))


async def _one_by_one(
    requests: Iterable[audio_pb2.TranscribeRequest],
) -> AsyncGenerator[audio_pb2.TranscribeRequest, None]:
    for request in requests:
        yield request


async def _live(
    opening: audio_pb2.TranscribeStreamRequest, audio: AsyncIterable[bytes], form: AudioFormat
) -> AsyncGenerator[audio_pb2.TranscribeStreamRequest, None]:
    """The messages of live audio, to the service."""
    yield opening
    async for block in audio:
        for part in live_blocks(block, form):
            yield audio_pb2.TranscribeStreamRequest(audio=part)
