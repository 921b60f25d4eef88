"""The audio service as a process of its own, with the demo model and speech it knows."""

from __future__ import annotations

import asyncio
import io
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
import soundfile
import soxr
from google.rpc import error_details_pb2, status_pb2
from jiwer import wer
from numpy.typing import NDArray

from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from hedgerow.channel import done_sending, open_channel, send
from launcher.processes import ServiceSpec, free_port
from tests.forked import ServiceProcess
from tests.models import MODELS, SAMPLES
from tests.unit.audio.sounds import opus_packets
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]

REPOSITORY = Path(__file__).parents[2]
FRANCE, FRANCE_TEXT = "capital-of-france.wav", "what is the capital of france"
FOX, FOX_TEXT = "story-about-a-fox.wav", "tell me a story about a fox"
SEVEN, SEVEN_TEXT = "seven-plus-five.wav", "what is 7 plus 5"
RATE = 16_000
S16, F32, OPUS = audio_pb2.ENCODING_PCM_S16LE, audio_pb2.ENCODING_PCM_F32LE, audio_pb2.ENCODING_OPUS
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Service:
    """A running service and how to reach it."""

    process: ServiceProcess
    stub: Any
    metrics: str

    async def transcribe(self, data: bytes, size: int = 8_192, **options: Any) -> list[audio_pb2.TranscribeResponse]:
        return [reply async for reply in self.stub.Transcribe(file(data, size, **options), timeout=60)]

    async def text(self, data: bytes) -> str:
        return plain((await self.transcribe(data))[-1].summary.text)

    async def outcome(self, samples: Samples) -> str:
        """The text, or the reason of an error."""
        try:
            return await self.text(written(samples, RATE, 1, "WAV", "PCM_16"))
        except grpc.aio.AioRpcError as error:
            return reason(error)

    def hear(self, requests: AsyncIterator[audio_pb2.TranscribeStreamRequest]) -> Any:
        """A stream. Where it is over before they are, its status stays the service's: of gRPC's own iterators it would
        be INTERNAL."""
        call = self.stub.TranscribeStream(timeout=30)

        async def talk() -> None:
            async for request in requests:
                if not await send(call, request):
                    return
            await done_sending(call)

        talking = asyncio.create_task(talk())
        call.add_done_callback(lambda _: talking.cancel())
        return call

    async def model(self) -> audio_pb2.GetModelResponse:
        reply: audio_pb2.GetModelResponse = await self.stub.GetModel(audio_pb2.GetModelRequest(), timeout=5)
        return reply

    async def gauge(self, name: str) -> float:
        """The sum of a metric over its labels."""
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{self.metrics}/metrics").read().decode())
        return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))


def speech(name: str) -> Samples:
    """A sample, at 16 kHz."""
    samples, rate = soundfile.read(SAMPLES / name, dtype="float32")
    return np.asarray(soxr.resample(samples, rate, RATE), np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def written(samples: Samples, rate: int, channels: int, form: str, subtype: str) -> bytes:
    """A file with the samples, which are at 16 kHz, in every channel."""
    out, resampled = io.BytesIO(), soxr.resample(samples, RATE, rate)
    soundfile.write(out, np.stack([resampled] * channels, 1), rate, format=form, subtype=subtype)
    return out.getvalue()


def plain(text: str) -> str:
    """Without case and punctuation."""
    return " ".join("".join(letter for letter in text.lower() if letter.isalnum() or letter == " ").split())


def file(data: bytes, size: int = 8_192, **options: Any) -> Iterator[audio_pb2.TranscribeRequest]:
    yield audio_pb2.TranscribeRequest(options=audio_pb2.TranscribeOptions(**options))
    for at in range(0, len(data), size):
        yield audio_pb2.TranscribeRequest(data=data[at : at + size])


def begin(
    encoding: int = S16, rate: int = RATE, channels: int = 1, **options: Any
) -> audio_pb2.TranscribeStreamRequest:
    form = audio_pb2.AudioFormat(encoding=encoding, sample_rate_hz=rate, channels=channels)
    return audio_pb2.TranscribeStreamRequest(options=audio_pb2.StreamOptions(format=form, **options))


def messages(samples: Samples, encoding: int = S16, rate: int = RATE, channels: int = 1) -> list[bytes]:
    """Of 20 ms each."""
    resampled = np.asarray(soxr.resample(samples, RATE, rate), np.float32)
    if encoding == OPUS:
        return opus_packets(resampled, channels)
    interleaved = np.repeat(resampled, channels)
    data = (interleaved * 32_767).astype("<i2").tobytes() if encoding == S16 else interleaved.astype("<f4").tobytes()
    size = rate // 50 * channels * (2 if encoding == S16 else 4)
    return [data[at : at + size] for at in range(0, len(data), size)]


async def spoken(
    first: audio_pb2.TranscribeStreamRequest, pieces: list[bytes], then: asyncio.Event | None = None
) -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
    """As a microphone would send it: 20 ms every 20 ms."""
    yield first
    began = time.monotonic()
    for number, piece in enumerate(pieces):
        await asyncio.sleep(max(0.0, began + number * 0.02 - time.monotonic()))
        yield audio_pb2.TranscribeStreamRequest(audio=piece)
    if then:
        await then.wait()


def reason(error: grpc.aio.AioRpcError) -> str:
    """The stable reason of an error."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    return info.reason


def spec(address: str, **settings: object) -> ServiceSpec:
    settings = {"ADDRESS": address, "MODEL": str(MODELS / "demo-whisper"), **settings}
    environment = {f"HEDGEROW_AUDIO_{name.upper()}": str(value) for name, value in settings.items()}
    return ServiceSpec("audio", "services.audio", address, environment)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    settings = {"max_ahead_ms": 600_000, "max_duration_s": 120, "metrics_address": metrics}
    process = ServiceProcess(spec(address, **settings), tmp_path_factory.mktemp("logs"))
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, audio_pb2_grpc.AudioServiceStub(channel), metrics)
    finally:
        assert await process.stop() == 0


@pytest_asyncio.fixture(loop_scope="module")
async def small(tmp_path: Path) -> AsyncIterator[Service]:
    """A service of the test's own, which takes one stream and one recording at real time."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"max_streams": 1, "max_recordings": 1, "max_ahead_ms": 500}
    process = ServiceProcess(spec(address, **settings), tmp_path)
    try:
        await process.wait_serving()
        async with open_channel(address) as channel:
            yield Service(process, audio_pb2_grpc.AudioServiceStub(channel), "")
    finally:
        await process.stop()


async def test_it_says_what_it_runs(service: Service) -> None:
    model = await service.model()
    assert (model.name, model.device, model.max_streams) == ("demo-whisper", "cpu", 8)
    assert model.compute_type.startswith("int8")
    assert 0 <= model.load <= 1


@pytest.mark.parametrize(
    ("form", "subtype", "rate", "channels"),
    [
        *[("WAV", "PCM_16", rate, 1) for rate in (8_000, 11_025, 16_000, 22_050, 44_100, 48_000)],
        *[("WAV", subtype, 16_000, 1) for subtype in ("PCM_U8", "PCM_24", "PCM_32", "FLOAT", "ULAW")],
        *[("WAV", "PCM_16", 48_000, channels) for channels in (2, 8)],
        *[("FLAC", "PCM_16", 44_100, 2), ("FLAC", "PCM_24", 16_000, 1)],
        *[("MP3", "MPEG_LAYER_III", 44_100, 2), ("MP3", "MPEG_LAYER_III", 16_000, 1)],
        *[("OGG", "OPUS", 48_000, 1), ("OGG", "OPUS", 48_000, 2)],
    ],
)
async def test_a_recording_in_any_form_is_written_down(
    service: Service, form: str, subtype: str, rate: int, channels: int
) -> None:
    first, *_, last = await service.transcribe(written(speech(FRANCE), rate, channels, form, subtype))
    assert first.recording.format == {"OGG": "OGG/OPUS"}.get(form, form)
    assert (first.recording.sample_rate_hz, first.recording.channels) == (rate, channels)
    assert first.recording.duration_s == pytest.approx(len(speech(FRANCE)) / RATE, abs=0.05)
    if rate >= 16_000:  # the demo model has never heard a telephone
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


async def test_what_is_no_recording_is_an_invalid_argument(service: Service) -> None:
    for data in (b"", b"RIFF", bytes(1_000), written(speech(FRANCE), RATE, 1, "WAV", "PCM_16")[:20_000]):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await service.transcribe(data)
        assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_INPUT")


@pytest.mark.parametrize(
    ("encoding", "rate", "channels"),
    [(S16, 16_000, 1), (S16, 48_000, 2), (F32, 44_100, 1), (OPUS, 48_000, 1), (OPUS, 48_000, 2)],
)
async def test_speech_in_any_form_is_written_down_while_it_is_spoken(
    service: Service, encoding: int, rate: int, channels: int
) -> None:
    requests = spoken(begin(encoding, rate, channels), messages(speech(FRANCE), encoding, rate, channels))
    replies = [reply async for reply in service.hear(requests)]
    summary = replies[-1].summary
    assert plain(summary.text) == FRANCE_TEXT
    assert summary.audio_s == pytest.approx(len(speech(FRANCE)) / RATE, abs=0.1)
    assert 0 < summary.speech_s < summary.audio_s
    assert summary.busy_s > 0


@pytest.mark.parametrize("policy", [audio_pb2.POLICY_LOCAL_AGREEMENT, audio_pb2.POLICY_WINDOWS])
async def test_every_policy_closes_a_segment_at_a_pause(service: Service, policy: int) -> None:
    audio = np.concatenate([speech(FRANCE), silence(1.0), speech(SEVEN), silence(0.5)])
    requests = spoken(begin(policy=policy), messages(audio))
    replies = [reply async for reply in service.hear(requests)]
    kinds = [reply.WhichOneof("kind") for reply in replies]
    assert (kinds.count("speech_started"), kinds.count("segment"), kinds[-1]) == (2, 2, "summary")
    assert wer(f"{FRANCE_TEXT} {SEVEN_TEXT}", plain(replies[-1].summary.text)) <= 0.1, replies[-1].summary.text


async def test_partial_text_and_a_closed_segment_come_before_the_speaker_ends(service: Service) -> None:
    still_open = asyncio.Event()
    audio = np.concatenate([speech(FRANCE), silence(1.2)])
    call = service.hear(spoken(begin(), messages(audio), then=still_open))
    kinds = []
    async for reply in call:
        kinds.append(reply.WhichOneof("kind"))
        if kinds[-1] == "segment":
            assert plain(reply.segment.text) == FRANCE_TEXT
            break
    assert "partial" in kinds
    still_open.set()
    assert [reply.WhichOneof("kind") async for reply in call][-1] == "summary"


async def test_two_streams_are_heard_side_by_side(service: Service) -> None:
    async def listen(name: str) -> list[audio_pb2.TranscribeStreamResponse]:
        requests = spoken(begin(), messages(np.concatenate([speech(name), silence(0.8)])))
        return [reply async for reply in service.hear(requests)]

    france, fox = await asyncio.gather(listen(FRANCE), listen(FOX))
    assert plain(france[-1].summary.text) == FRANCE_TEXT
    assert wer(FOX_TEXT, plain(fox[-1].summary.text)) <= 0.2, fox[-1].summary.text


async def test_a_long_recording_does_not_hold_up_a_stream(service: Service) -> None:
    long = np.concatenate([speech(FRANCE), silence(0.6)] * 30)
    recording = asyncio.create_task(service.transcribe(written(long, RATE, 1, "WAV", "PCM_16")))
    requests = spoken(begin(), messages(np.concatenate([speech(FRANCE), silence(0.8)])))
    replies = [reply async for reply in service.hear(requests)]
    assert plain(replies[-1].summary.text) == FRANCE_TEXT
    assert len(await recording) >= 30 + 2  # a few more on a CPU without AVX-512, where a question may come in two


async def test_one_stream_too_many_is_refused_with_a_reason_and_a_delay(small: Service) -> None:
    closed = asyncio.Event()
    first = small.hear(spoken(begin(), messages(speech(FRANCE)), then=closed))
    assert (await anext(aiter(first))).WhichOneof("kind") == "speech_started"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(small.hear(spoken(begin(), []))))
    assert (caught.value.code(), reason(caught.value)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "STREAMS_FULL")
    assert caught.value.details() == "streams: at most 1, got one more"
    closed.set()
    assert plain([reply async for reply in first][-1].summary.text) == FRANCE_TEXT


async def test_a_client_that_goes_gives_its_place_back(small: Service) -> None:
    first = small.hear(spoken(begin(), messages(speech(FRANCE)), then=asyncio.Event()))
    await anext(aiter(first))
    first.cancel()
    await until(small.model, 5, holds=lambda model: not model.streams)
    recording = small.stub.Transcribe(file(written(silence(100), RATE, 1, "WAV", "PCM_16")), timeout=30)
    await anext(aiter(recording))
    recording.cancel()
    outcome = await until(lambda: small.outcome(speech(FRANCE)), holds=lambda now: now != "RECORDINGS_FULL")
    assert outcome == FRANCE_TEXT


async def test_a_client_faster_than_real_time_is_held_to_it(small: Service) -> None:
    call = small.stub.TranscribeStream(timeout=3)

    async def eager() -> None:
        going = await send(call, begin())
        for _ in range(200):  # two seconds of silence each
            going = going and await send(call, audio_pb2.TranscribeStreamRequest(audio=bytes(64_000)))

    sending = asyncio.create_task(eager())
    # The service ends it a moment before its deadline.
    replies = [reply async for reply in call]
    sending.cancel()
    await asyncio.wait([sending])
    assert 0 < replies[-1].summary.audio_s < 10


async def test_sigterm_ends_a_stream_with_what_was_heard(small: Service) -> None:
    audio = np.concatenate([speech(FRANCE), silence(1.0)])
    call = small.hear(spoken(begin(), messages(audio), then=asyncio.Event()))
    replies = []
    async for reply in call:
        replies.append(reply)
        if reply.WhichOneof("kind") == "segment":
            small.process.signal(signal.SIGTERM)
    assert plain(replies[-1].summary.text) == FRANCE_TEXT
    assert await asyncio.wait_for(small.process.wait(), 10) == 0


async def test_a_model_that_cannot_be_opened_ends_the_start_with_2(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    process = ServiceProcess(spec(address, model=str(tmp_path), MODEL=str(tmp_path)), tmp_path / "logs")
    try:
        assert await asyncio.wait_for(process.wait(), 60) == 2
        assert str(tmp_path) in process.tail()
    finally:
        await process.stop()
