"""Auxiliary HTTP endpoints: statuses, and the audio service's errors in a transcription."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hedgerow.audio.v1 import audio_pb2
from services.gateway.errors import Unfinished
from services.gateway.http.endpoints.embedding import Embedding
from services.gateway.http.endpoints.endpoint_admission import Admitted, EndpointAdmission
from services.gateway.http.endpoints.transcriptions import MultipartForm, Transcriptions, _transcribed
from services.gateway.http.fields import Fields
from services.gateway.http.server.endpoint import Serve
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.settings.generation import BreakerSettings
from services.gateway.upstream.media import AudioBackend
from services.gateway.upstream.replica import make_breaker
from services.runtime.errors import Exhausted, ServiceError, TooLate, Unavailable
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.calling import Bill, Bills, EmbeddingCache, admission, asked, wire
from tests.waiting import until

pytestmark = pytest.mark.paused

SEGMENT = audio_pb2.TranscribeResponse(segment=audio_pb2.Segment(text="Hello."))
SUMMARY = audio_pb2.TranscribeResponse(summary=audio_pb2.TranscribeSummary(text="Hello.", audio_s=2))
Said = float | ServiceError | audio_pb2.TranscribeResponse


class ScriptedAudio:
    """Says what a script has, with pauses of so many seconds."""

    def __init__(self, *script: Said):
        self.script: Iterable[Said] = script

    async def recording(self, *_: Any) -> AsyncGenerator[audio_pb2.TranscribeResponse, None]:
        for each in self.script:
            if isinstance(each, ServiceError):
                raise each
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                yield each


def audio_backend(*script: Said) -> AudioBackend:
    breaker = make_breaker(BreakerSettings(in_a_row=2), "audio", LatencyBaseline(1, loop_clock), loop_clock)
    return AudioBackend(ScriptedAudio(*script), breaker)


def form(recording: str = "RIFF", **fields: str) -> bytes:
    parts = [f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields.items()]
    head = '--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return asked("".join((*parts, head, recording, "\r\n--b--\r\n")), "multipart/form-data; boundary=b")


@pytest.mark.parametrize(("own_ms", "asked_ms", "expected_s"), [(0, "", 30), (500, "", 0.5), (500, "800", 0.8)])
async def test_a_request_that_names_no_budget_has_its_tenants(own_ms: int, asked_ms: str, expected_s: float) -> None:
    tenant = replace(EVERYTHING, default_budget_ms=own_ms)
    exchange: Any = SimpleNamespace(
        credential=SimpleNamespace(tenant=tenant), headers={"x-hedgerow-budget-ms": asked_ms}
    )
    assert admission()._budget_s(exchange, None, None) == expected_s


async def test_a_transcript_that_streams_has_its_headers_before_the_first_sign_of_life() -> None:
    sent = wire(Transcriptions(admission(), audio_backend(25.0, SEGMENT, SUMMARY)))
    await sent.send(form(stream="true"))
    assert sent.statuses == []
    await asyncio.sleep(12)
    head, _, body = bytes(sent.transport.written).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"text/event-stream" in head
    assert b": ping\n" in body
    await asyncio.sleep(20)
    assert b"transcript.text.done" in sent.transport.written
    await sent.end()


@pytest.mark.parametrize(("language", "expected"), [("zh", "你好。世界。"), ("en", "你好。 世界。")])
async def test_the_segments_of_a_stream_are_parted_as_their_language_parts_words(language: str, expected: str) -> None:
    segments = [audio_pb2.Segment(text=text, language=language) for text in ("你好。", "世界。")]
    said = [audio_pb2.TranscribeResponse(segment=segment) for segment in segments]
    sent = wire(Transcriptions(admission(), audio_backend(*said, SUMMARY)))
    await sent.send(form(stream="true"))
    assert f'"text":{json.dumps(expected)}'.encode() in sent.transport.written
    await sent.end()


async def transcribed(listening: AudioBackend, pause_s: float = 0.0) -> None:
    """The bytes that a client reads, with a pause after each piece."""
    admitted = Admitted("acme", 60, ())
    replies = _transcribed(listening, MultipartForm(Fields({}), b"RIFF"), audio_pb2.TranscribeOptions(), admitted)
    async with aclosing(replies) as pieces:
        async for _ in pieces:
            await asyncio.sleep(pause_s)


async def test_how_slowly_a_client_reads_and_how_long_a_recording_is_is_not_what_the_service_usually_takes() -> None:
    listening = audio_backend(0.1, SEGMENT, 30.0, SUMMARY)
    await asyncio.gather(*(transcribed(listening, pause_s=60) for _ in range(30)))
    assert listening.breaker.baseline.needs_s() == 1


async def test_a_long_recording_with_little_time_is_no_failure_of_the_service_that_writes_it_down() -> None:
    listening = audio_backend(0.1, SEGMENT, 5.0, Unfinished("audio: late"))
    for _ in range(5):
        with pytest.raises(TooLate):
            await transcribed(listening)
    assert listening.breaker.would_admit("other")


@pytest.mark.parametrize("script", [(5.0, TooLate("audio: late")), (SEGMENT, Unavailable("audio: gone"))])
async def test_a_service_that_stays_silent_or_breaks_off_is_not_asked_for_a_while(script: tuple[Said, ...]) -> None:
    listening = audio_backend(*script)
    for _ in range(2):
        with pytest.raises((TooLate, Unavailable)):
            await transcribed(listening)
    assert not listening.breaker.would_admit("other")


# ---- what it costs ----


TEXT = "x" * 400  # 100 tokens
RECORDING = audio_pb2.TranscribeResponse(recording=audio_pb2.Recording(duration_s=3_600))
HOUR = audio_pb2.TranscribeResponse(segment=audio_pb2.Segment(text="Hello.", end_s=3_600))


async def charged(serve: Callable[[EndpointAdmission], Serve], request: bytes, *, leaves: bool) -> Bill:
    """The cost of a request whose client stays to the end, or leaves after a while."""
    bills = Bills()
    sent = wire(serve(admission(bills)))
    await sent.send(request)
    if leaves:
        await asyncio.sleep(1)
    else:
        await until(lambda: sent.statuses, 60)
    await sent.end()
    (bill,) = bills.made
    return bill


def embedding(*script: float | ServiceError) -> Callable[[EndpointAdmission], Serve]:
    return lambda admission: Embedding(admission, EmbeddingCache(*script)).embed


def transcribing(*script: Said) -> Callable[[EndpointAdmission], Serve]:
    return lambda admission: Transcriptions(admission, audio_backend(*script))


@pytest.mark.parametrize(
    ("script", "leaves", "cost"),
    [
        ((), False, 100),
        ((10.0,), True, 100),
        ((TooLate("cache: late"),), False, 100),
        ((Unavailable("cache: gone"),), False, 0),
    ],
    ids=["whole", "left", "late", "away"],
)
async def test_texts_are_charged_when_they_are_asked_for(
    script: tuple[float | ServiceError, ...], leaves: bool, cost: int
) -> None:
    request = asked(json.dumps({"input": TEXT}))
    assert await charged(embedding(*script), request, leaves=leaves) == Bill(100, cost)


@pytest.mark.parametrize("wanted", [{"model": "unknown"}, {"dimensions": 3}], ids=["model", "dimensions"])
async def test_texts_are_charged_when_their_vectors_are_not_those_that_were_asked_for(wanted: dict[str, Any]) -> None:
    request = asked(json.dumps({"input": TEXT, **wanted}))
    assert await charged(embedding(), request, leaves=False) == Bill(100, 100)


@pytest.mark.parametrize(
    ("script", "leaves", "cost"),
    [
        ((SEGMENT, SUMMARY), False, 20),
        ((10.0, SUMMARY), True, 1_000),
        ((HOUR, 10.0, SUMMARY), True, 36_000),
        ((TooLate("audio: late"),), False, 1_000),
        ((HOUR, Unavailable("audio: gone")), False, 36_000),
        ((RECORDING, Exhausted("audio: preempted")), False, 0),
        ((Unavailable("audio: gone"),), False, 0),
        ((Exhausted("audio: busy"),), False, 0),
    ],
    ids=["whole", "left", "left in the middle", "late", "broken off", "preempted", "away", "busy"],
)
async def test_recordings_are_charged_by_their_bytes_until_their_seconds_are_known(
    script: tuple[Said, ...], leaves: bool, cost: int
) -> None:
    request = form("Ogg".ljust(400_000, "x"))  # 100 s as speech is packed
    assert await charged(transcribing(*script), request, leaves=leaves) == Bill(1_000, cost)


async def test_uncompressed_audio_costs_less_for_each_byte() -> None:
    request = form("RIFF".ljust(320_000, "x"))
    assert await charged(transcribing(10.0), request, leaves=True) == Bill(100, 100)
