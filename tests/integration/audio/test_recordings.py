"""Recordings, written down by the audio service."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import numpy as np
import pytest

from launcher.processes import free_port
from tests.forked import ServiceProcess
from tests.integration.audio.service import (
    FRANCE,
    FRANCE_TEXT,
    RATE,
    SEVEN,
    SEVEN_TEXT,
    Service,
    begin,
    messages,
    plain,
    reason,
    silence,
    spec,
    speech,
    spoken,
    written,
)
from tests.unit.audio.sounds import samples_muxed

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


async def test_the_service_reports_its_model(service: Service) -> None:
    model = await service.model()
    assert (model.name, model.device, model.max_streams) == ("demo-whisper", "cpu", 8)
    assert model.compute_type.startswith("int8")
    assert 0 <= model.load <= 1


@pytest.mark.parametrize(
    ("form", "subtype", "rate", "channels"),
    [("WAV", "PCM_16", 8_000, 1), ("WAV", "PCM_16", 48_000, 8), ("MP3", "MPEG_LAYER_III", 44_100, 2)],
)
async def test_a_recording_is_written_down_with_what_it_is(
    service: Service, form: str, subtype: str, rate: int, channels: int
) -> None:
    """Which forms are decoded is proven without a model (`tests/unit/audio/test_audio_decoding.py`)."""
    first, *_, last = await service.transcribe(written(speech(FRANCE), rate, channels, form, subtype))
    assert (first.recording.format, first.recording.sample_rate_hz, first.recording.channels) == (form, rate, channels)
    assert first.recording.duration_s == pytest.approx(len(speech(FRANCE)) / RATE, abs=0.05)
    if rate >= 16_000:  # the demo model has never heard a telephone
        assert plain(last.summary.text) == FRANCE_TEXT


async def test_a_browsers_recording_is_written_down(service: Service) -> None:
    *_, last = await service.transcribe(samples_muxed(speech(FRANCE), RATE, "webm", "libopus", piped=True))
    assert plain(last.summary.text) == FRANCE_TEXT


async def test_a_recording_comes_in_segments_with_the_times_of_its_words(service: Service) -> None:
    audio = np.concatenate([speech(FRANCE), silence(1.5), speech(SEVEN)])
    _, *segments, last = await service.transcribe(written(audio, RATE, 1, "WAV", "PCM_16"), words=True)
    assert [plain(reply.segment.text) for reply in segments] == [FRANCE_TEXT, SEVEN_TEXT]
    second = segments[1].segment
    begins = len(speech(FRANCE)) / RATE + 1.5
    assert second.index == 1
    assert begins - 0.3 < second.start_s < begins + 0.8
    starts = [word.start_s for reply in segments for word in reply.segment.words]
    assert starts == sorted(starts)
    assert last.summary.audio_s == pytest.approx(len(audio) / RATE, abs=0.01)
    assert 0 < last.summary.speech_s < last.summary.audio_s
    assert last.summary.busy_s > 0
    assert await service.gauge("hedgerow_audio_busy_seconds_total") > 0


async def test_data_that_is_no_recording_is_an_invalid_argument(service: Service) -> None:
    for data in (b"", b"RIFF", bytes(1_000), written(speech(FRANCE), RATE, 1, "WAV", "PCM_16")[:20_000]):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.transcribe(data)
        assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


async def test_a_long_recording_does_not_delay_a_stream(service: Service) -> None:
    long = np.concatenate([speech(FRANCE), silence(0.6)] * 30)
    recording = asyncio.create_task(service.transcribe(written(long, RATE, 1, "WAV", "PCM_16")))
    requests = spoken(begin(), messages(np.concatenate([speech(FRANCE), silence(0.8)])))
    replies = [reply async for reply in service.hear(requests)]
    assert plain(replies[-1].summary.text) == FRANCE_TEXT
    assert len(await recording) >= 30 + 2  # a few more on a CPU without AVX-512, where a question may come in two


async def test_a_model_that_cannot_be_opened_ends_the_start_with_2(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = ServiceProcess(spec(address, model=str(tmp_path), MODEL=str(tmp_path)), tmp_path / "logs")
    try:
        assert await asyncio.wait_for(process.wait(), 60) == 2
        assert str(tmp_path) in process.tail()
    finally:
        await process.stop()
