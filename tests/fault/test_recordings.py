"""Recordings that are not what they say they are, and streams that do not end."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from hedgerow._sending_aio import Sender
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from hedgerow.channel import open_channel
from launcher.processes import free_port
from tests.conftest import Start
from tests.fault.apart import MEASURED
from tests.fault.memory import forget_peak, peak_mib
from tests.fault.report import Report, Row
from tests.forked import ServiceProcess
from tests.unit.audio.sounds import encoded, hours_of_silence, wav_claiming, written
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)
_MAX_STREAM_S, _MAX_AHEAD_S = (6.0, 2.0) if MEASURED in os.environ else (2.0, 0.5)
_PCM_MIB = 64
_SECOND = bytes(32_000)  # of 16-bit silence


def _silence(form: str, subtype: str, channels: int, seconds: int) -> bytes:
    return written(np.zeros((48_000 * seconds, channels), np.float32), 48_000, form, subtype)


def _flipped(data: bytes, every: int) -> bytes:
    damaged = bytearray(data)
    for at in range(every, len(damaged), every):
        damaged[at] ^= 0xFF
    return bytes(damaged)


def _faults() -> dict[str, list[bytes]]:
    """Files by what is wrong with them."""
    whole = encoded(5, 44_100, 2, "FLAC"), encoded(5, 48_000, 1, "OGG", "OPUS")
    return {
        "10 hours of silence in 2 MB of Opus": [hours_of_silence(10)],
        "10 hours of silence in Opus that claims to be 1 s": [hours_of_silence(10, claimed_s=1)],
        "8 channels of silence in a small FLAC": [_silence("FLAC", "PCM_16", 8, 60)],
        "forged sample rate": [wav_claiming(rate) for rate in (0, 1, 7_999, 48_001, 192_000, 4_000_000_000)],
        "WAV that claims more than it has": [wav_claiming(16_000, length) for length in (32_001, 10**9, 0x7FFFEFFF)],
        "recording that is cut short": [data[: len(data) * share // 8] for data in whole for share in range(8)],
        "recording with flipped bytes": [_flipped(data, every) for data in whole for every in (100, 999, 9_001)],
        "no recording": [b"", b"RIFF", bytes(100_000), b"\x7fELF" * 9_999, b"<html>" * 999],
    }


_REFUSED_MS = {  # these show only when they are decoded, up to the limit
    "10 hours of silence in Opus that claims to be 1 s": 2_000,
}


@dataclass(frozen=True)
class _Audio:
    """A running audio service with the demo model."""

    process: ServiceProcess
    stub: Any
    metrics: str

    async def ended(self, method: str) -> dict[str, int]:
        """How many calls of a method it has ended, by code."""
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{self.metrics}/metrics").read().decode())
        lines = [line for line in page.splitlines() if line.startswith("hedgerow_rpc_seconds_count")]
        found = [line for line in lines if f'method="{method}"' in line]
        return {line.split('code="')[1].split('"')[0]: int(float(line.split()[-1])) for line in found}

    async def transcribe(self, data: bytes) -> grpc.StatusCode:
        return await _code(self.stub.Transcribe(timeout=30), _file(data))


@pytest.fixture
async def audio(start: Start, models: Path) -> AsyncIterator[_Audio]:
    metrics = f"127.0.0.1:{free_port()}"
    process = await start(
        "audio",
        model=str(models / "demo-whisper"),
        metrics_address=metrics,
        max_duration_s="3600",
        max_pcm_bytes=str(_PCM_MIB * 1024 * 1024),
        max_stream_s=str(_MAX_STREAM_S),
        max_ahead_ms=str(round(_MAX_AHEAD_S * 1000)),
    )
    async with open_channel(process.spec.address) as channel:
        running = _Audio(process, audio_pb2_grpc.AudioServiceStub(channel), metrics)
        for _ in range(5):
            assert await running.transcribe(encoded(1)) is grpc.StatusCode.OK
        yield running


async def _code(call: Any, requests: AsyncGenerator[Any, None]) -> grpc.StatusCode:
    """How a call ends that is sent `requests` as our clients send them: a refusal in mid-sending keeps its reason."""
    sending = asyncio.create_task(Sender(call).run(requests))
    try:
        async for _ in call:
            pass
        return grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        sending.cancel()
        await asyncio.wait([sending])


async def _file(data: bytes) -> AsyncGenerator[audio_pb2.TranscribeRequest, None]:
    for at in range(0, len(data), 65_536):
        yield audio_pb2.TranscribeRequest(data=data[at : at + 65_536])


async def test_a_false_recording_is_refused_and_takes_no_memory(audio: _Audio, report: Report):
    for fault, files in _faults().items():
        with report.case(22, fault) as row:
            forget_peak(audio.process)
            before, slowest_s = peak_mib(audio.process), 0.0
            for data in files:
                began = time.monotonic()
                assert await audio.transcribe(data) is grpc.StatusCode.INVALID_ARGUMENT, fault
                slowest_s = max(slowest_s, time.monotonic() - began)
                row.tally(failed=1)
            row.measured("refused after", slowest_s * 1000, _REFUSED_MS.get(fault, 200))
            row.measured("memory", peak_mib(audio.process) - before, 48, " MiB", slack=2)
            await _well(audio, row)


async def test_a_file_without_end_is_refused_while_it_comes_in(audio: _Audio, report: Report):
    sent = 0

    async def endless() -> AsyncGenerator[audio_pb2.TranscribeRequest, None]:
        nonlocal sent
        while True:
            sent += 1
            yield audio_pb2.TranscribeRequest(data=bytes(1024 * 1024))

    with report.case(22, "file without end") as row:
        forget_peak(audio.process)
        before, began = peak_mib(audio.process), time.monotonic()
        await _code(audio.stub.Transcribe(timeout=30), endless())
        await until(lambda: _has_ended(audio, "Transcribe", "INVALID_ARGUMENT"), 30)
        row.detected(time.monotonic() - began, limit_s=5)
        row.measured("sent", sent, 48, " MiB")  # of which 32 MiB may come, and some is on its way
        row.measured("memory", peak_mib(audio.process) - before, 96, " MiB")
        row.tally(failed=1)
        await _well(audio, row)


async def test_a_stream_without_end_is_ended_by_what_it_has_sent(audio: _Audio, report: Report):
    with report.case(22, "stream without end, at real time") as row:
        began = time.monotonic()
        code = await _code(audio.stub.TranscribeStream(timeout=60), _spoken(_MAX_STREAM_S * 3))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        row.detected(time.monotonic() - began, limit_s=_MAX_STREAM_S + 1)
        row.tally(failed=1)
        await _well(audio, row)


async def test_a_stream_that_is_too_fast_is_throttled_and_then_ended(audio: _Audio, report: Report):
    sent = 0

    async def eager() -> AsyncGenerator[audio_pb2.TranscribeStreamRequest, None]:
        nonlocal sent
        yield _begin()
        while True:
            sent += 1
            yield audio_pb2.TranscribeStreamRequest(audio=_SECOND)

    with report.case(22, "stream without end, as fast as it goes") as row:
        forget_peak(audio.process)
        before, began = peak_mib(audio.process), time.monotonic()
        await _code(audio.stub.TranscribeStream(timeout=60), eager())
        await until(lambda: _has_ended(audio, "TranscribeStream", "INVALID_ARGUMENT"), 30)
        row.detected(time.monotonic() - began, limit_s=_MAX_STREAM_S + 1)
        row.measured("sent", sent * len(_SECOND) / 2**20, 24, " MiB")  # mostly into gRPC's windows
        row.measured("memory", peak_mib(audio.process) - before, 32, " MiB")
        row.tally(failed=1)
        await _well(audio, row)


def _begin() -> audio_pb2.TranscribeStreamRequest:
    form = audio_pb2.AudioFormat(encoding=audio_pb2.ENCODING_PCM_S16LE)
    return audio_pb2.TranscribeStreamRequest(options=audio_pb2.StreamOptions(format=form))


async def _spoken(seconds: float) -> AsyncGenerator[audio_pb2.TranscribeStreamRequest, None]:
    """Silence as a microphone would send it, in tenths of a second."""
    yield _begin()
    began = time.monotonic()
    for tenth in range(round(seconds * 10)):
        await asyncio.sleep(max(0.0, began + tenth / 10 - time.monotonic()))
        yield audio_pb2.TranscribeStreamRequest(audio=_SECOND[:3_200])


async def _well(audio: _Audio, row: Row) -> None:
    """The next caller is served, and no stream holds a slot any more."""
    assert await audio.transcribe(encoded(1)) is grpc.StatusCode.OK
    row.tally(ok=1)
    assert not (await audio.stub.GetModel(audio_pb2.GetModelRequest(), timeout=5)).streams


async def _has_ended(audio: _Audio, method: str, code: str) -> bool:
    return (await audio.ended(method)).get(code, 0) > 0
