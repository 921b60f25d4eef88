"""The audio service as a process of its own, with the demo model and speech it knows."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import soundfile
import soxr
from google.rpc import error_details_pb2, status_pb2
from numpy.typing import NDArray

from hedgerow.audio.v1 import audio_pb2
from hedgerow.channel import done_sending, send
from launcher.processes import ServiceSpec
from tests.forked import ServiceProcess
from tests.models import MODELS, SAMPLES
from tests.unit.audio import sounds

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
        reply: audio_pb2.GetModelResponse = await self.stub.GetModel(audio_pb2.GetModelRequest(), timeout=20)
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
    return sounds.written(np.stack([soxr.resample(samples, RATE, rate)] * channels, 1), rate, form, subtype)


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
    """Messages of 20 ms each."""
    resampled = np.asarray(soxr.resample(samples, RATE, rate), np.float32)
    if encoding == OPUS:
        return sounds.opus_packets(resampled, channels)
    interleaved = np.repeat(resampled, channels)
    data = (interleaved * 32_767).astype("<i2").tobytes() if encoding == S16 else interleaved.astype("<f4").tobytes()
    size = rate // 50 * channels * (2 if encoding == S16 else 4)
    return [data[at : at + size] for at in range(0, len(data), size)]


async def spoken(
    first: audio_pb2.TranscribeStreamRequest,
    pieces: list[bytes],
    then: asyncio.Event | None = None,
    each_s: float = 0.02,
) -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
    """Messages of 20 ms, by default every 20 ms, as a microphone has them."""
    yield first
    began = time.monotonic()
    for number, piece in enumerate(pieces):
        await asyncio.sleep(max(0.0, began + number * each_s - time.monotonic()))
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
