"""Scripted services of pictures and of speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from hedgerow.audio.v1 import audio_pb2
from hedgerow.vision.v1 import vision_pb2
from services.gateway.policies.baseline import LatencyBaseline, WorkBaseline
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.media import AudioBackend, Media, VisionBackend
from services.gateway.upstream.replica import make_breaker
from services.runtime.errors import ServiceError, TooLate


class ScriptedVision:
    """Sees `results` after `pause_s`, or fails; notes what it was shown."""

    def __init__(self, *results: list[tuple[str, float]], pause_s: float = 0.0, error: ServiceError | None = None):
        self._pause_s, self._error = pause_s, error
        self._reply = vision_pb2.ClassifyResponse()
        for labels in results:
            shown = self._reply.results.add()
            for name, score in labels:
                shown.labels.add(name=name, score=score)
        self.requests: list[vision_pb2.ClassifyRequest] = []
        self.ended = 0  # calls that can run no longer

    def classify(self, request, timeout_s, metadata) -> ScriptedVision:
        self.requests.append(request)
        return self

    def cancel(self) -> None:
        self.ended += 1

    async def reply(self) -> vision_pb2.ClassifyResponse:
        await asyncio.sleep(self._pause_s)
        if self._error:
            raise self._error
        return self._reply


Said = audio_pb2.TranscribeStreamResponse


class ScriptedAudio:
    """Returns `text` for every recording. In live audio each message is a line of `script`, answered at once; `None`
    ends the stream from this side."""

    def __init__(self, text: str = "", error: ServiceError | None = None, pause_s: float = 0.0):
        self._text, self._error, self._pause_s = text, error, pause_s
        self.recordings: list[bytes] = []
        self.script: dict[bytes, list[Said]] = {}
        self.options: audio_pb2.StreamOptions | None = None

    async def transcribe(self, recording, timeout_s, metadata) -> audio_pb2.TranscribeSummary:
        self.recordings.append(recording)
        if self._pause_s > timeout_s:
            await asyncio.sleep(timeout_s)
            raise TooLate("audio: late")
        await asyncio.sleep(self._pause_s)
        if self._error:
            raise self._error
        return audio_pb2.TranscribeSummary(text=self._text, audio_s=2, speech_s=1.5)

    async def listen(self, requests, timeout_s, metadata) -> AsyncGenerator[Said, None]:
        async with aclosing(requests):
            async for request in requests:
                if request.HasField("options"):
                    self.options = request.options
                if self._error:
                    raise self._error
                for event in self.script.get(request.audio, []):
                    yield event
        yield Said(summary=audio_pb2.StreamSummary())


def senses(vision: ScriptedVision | None = None, audio: ScriptedAudio | None = None) -> Media:
    def breaker(name: str) -> TenantAwareBreaker:
        return make_breaker(BreakerSettings(), name, LatencyBaseline(0.05))

    vision_backend = looking(vision, breaker("vision")) if vision else None
    return Media(vision_backend, AudioBackend(audio, breaker("audio")) if audio else None)


def looking(vision: ScriptedVision, breaker: TenantAwareBreaker) -> VisionBackend:
    """A picture is expected to take as long as a call."""
    return VisionBackend(vision, breaker, WorkBaseline(breaker.baseline, breaker.baseline.expected_s))
