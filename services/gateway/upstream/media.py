"""The services that see and hear, where there are any: calls to them, and what stands before each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import grpc

from hedgerow.audio.v1 import audio_pb2
from hedgerow.vision.v1 import vision_pb2
from services.gateway.config import GatewaySettings
from services.gateway.errors import Unfinished
from services.gateway.policies.baseline import WorkBaseline
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.upstream.call_errors import Refused
from services.gateway.upstream.calls import Pending, both_streams, both_ways, unary
from services.gateway.upstream.replica import stage_breaker
from services.runtime.errors import TooLate, Unavailable
from services.runtime.telemetry import Metadata

_PIECE_BYTES = 256 * 1024  # of a recording, in one message
_AUDIO_S = 1.0  # that a second of audio takes while little is known: a slower service could not transcribe live audio


class VisionCalls:
    def __init__(self, channel: grpc.aio.Channel):
        self._classify = unary(channel, vision_pb2, "VisionService", "Classify")

    def classify(self, request: vision_pb2.ClassifyRequest, timeout_s: float, metadata: Metadata) -> Pending:
        """Start to look; ends after `timeout_s` at the latest."""
        return Pending(self._classify(request, timeout=timeout_s, metadata=metadata), "vision")


class AudioCalls:
    """The audio service. `work`: how long it takes for so many seconds of a recording."""

    def __init__(self, channel: grpc.aio.Channel, work: WorkBaseline):
        self._work = work
        self._transcribe = both_streams(channel, audio_pb2, "AudioService", "Transcribe")
        self._transcribe_stream = both_streams(channel, audio_pb2, "AudioService", "TranscribeStream")

    async def transcribe(self, recording: bytes, timeout_s: float, metadata: Metadata) -> audio_pb2.TranscribeSummary:
        """Transcribe a recording, within `timeout_s`. Raises as `recording` does."""
        summary = audio_pb2.TranscribeSummary()
        try:
            options = audio_pb2.TranscribeOptions()
            async with aclosing(self.recording(recording, options, timeout_s, metadata)) as replies:
                async for reply in replies:
                    summary.MergeFrom(reply.summary)
        except Refused as refusal:  # it names the field of its own request; the caller's is in `audio`
            raise Refused(f"audio.{refusal.message}") from None
        return summary

    async def recording(
        self, recording: bytes, options: audio_pb2.TranscribeOptions, timeout_s: float, metadata: Metadata
    ) -> AsyncGenerator[audio_pb2.TranscribeResponse, None]:
        """Transcribe a recording segment by segment, within `timeout_s`. Raises `TooLate`, which is `Unfinished` where
        the service had read the recording and was silent for less time than the whole of it usually takes, and
        `Unavailable` where the last reply is no summary."""
        call, clock = self._transcribe(timeout=timeout_s, metadata=metadata), self._work.clock
        audio_s, waited_s, since, whole = 0.0, 0.0, clock(), False
        try:
            async with aclosing(both_ways(call, _pieces(recording, options), "audio")) as replies:
                async for reply in replies:
                    waited_s += clock() - since
                    audio_s = audio_s or reply.recording.duration_s
                    if whole := reply.HasField("summary"):
                        self._work.add(audio_s, waited_s)
                    yield reply
                    since = clock()  # the time between is the caller's
        except TooLate as late:
            hangs = clock() - since >= self._work.needs_s(audio_s)
            raise (late if hangs or not audio_s else Unfinished(late.message)) from None
        if not whole:
            raise Unavailable("audio: ended without a summary")

    def listen(
        self,
        requests: AsyncGenerator[audio_pb2.TranscribeStreamRequest, None],
        timeout_s: float | None,
        metadata: Metadata,
    ) -> AsyncGenerator[audio_pb2.TranscribeStreamResponse, None]:
        """Transcribe live audio; the first request has the options. Closing it ends the call."""
        return both_ways(self._transcribe_stream(timeout=timeout_s, metadata=metadata), requests, "audio")


async def _pieces(
    recording: bytes, options: audio_pb2.TranscribeOptions
) -> AsyncGenerator[audio_pb2.TranscribeRequest, None]:
    yield audio_pb2.TranscribeRequest(options=options)
    for start in range(0, len(recording), _PIECE_BYTES):
        yield audio_pb2.TranscribeRequest(data=recording[start : start + _PIECE_BYTES])


@dataclass(frozen=True, slots=True)
class VisionBackend:
    """The vision service: `top_k` labels of each picture, by its default model. `work`: how long it takes for so many
    pictures. `note`: the template of the text with the labels for a language model; empty: an English sentence."""

    client: VisionCalls
    breaker: TenantAwareBreaker
    work: WorkBaseline
    top_k: int = 1
    note: str = ""

    def late(self, pictures: int, within_s: float) -> TooLate:
        """The error for so many pictures that were not classified within `within_s`: `Unfinished` where they usually
        take longer."""
        kind = TooLate if within_s >= self.work.needs_s(pictures) else Unfinished
        return kind(f"vision: longer than its {within_s * 1000:.0f} ms")


@dataclass(frozen=True, slots=True)
class AudioBackend:
    """The audio service, for recordings and live audio."""

    client: AudioCalls
    breaker: TenantAwareBreaker


@dataclass(frozen=True, slots=True)
class Media:
    """The services for pictures and recordings; None: not supported. `sees`: whether a model, by its name, gets
    pictures as they are; without a name, whether the one that is chosen does."""

    vision: VisionBackend | None = None
    audio: AudioBackend | None = None
    sees: Callable[[str], bool] = lambda name: False


def make_media(
    settings: GatewaySettings, channels: Mapping[str, grpc.aio.Channel], sees: Callable[[str], bool]
) -> Media:
    """The services that the settings name, reached by `channels`. `sees`: see `Media`."""
    vision = audio = None
    if settings.vision_address:
        client, vision_breaker = VisionCalls(channels[settings.vision_address]), stage_breaker(settings, "vision")
        work = WorkBaseline(vision_breaker.baseline, settings.expected.vision_ms / 1000)
        vision = VisionBackend(client, vision_breaker, work, settings.labels_per_image, settings.image_note)
    if settings.audio_address:
        audio_breaker = stage_breaker(settings, "audio")
        work = WorkBaseline(audio_breaker.baseline, _AUDIO_S)
        audio = AudioBackend(AudioCalls(channels[settings.audio_address], work), audio_breaker)
    return Media(vision, audio, sees)
