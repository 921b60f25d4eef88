"""The composition root: `python -m services.audio`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.audio.v1 import audio_pb2
from services.audio.admission import Admission, Need
from services.audio.audio_decoding import RecordingLimits
from services.audio.config import AudioSettings
from services.audio.errors import BadModel
from services.audio.recordings import RecordingDecoder
from services.audio.scheduler import TranscriptionScheduler
from services.audio.servicer import AudioServicer
from services.audio.whisper import Whisper, open_whisper
from services.runtime.process import serve
from services.runtime.process.cores import usable_cores

_SERVICE = audio_pb2.DESCRIPTOR.services_by_name["AudioService"]
_COMPUTE_TYPES = {"cpu": "int8", "cuda": "float16"}
_MOST_THREADS = 8  # more do not make the decoder's small products faster
_HELD_S = 4.0  # what a stream holds of an utterance at the mean
_EVERY_S = 1.0  # between two runs, at least a step: what a stream bears when others are there, and is still on time
_log = logging.getLogger("services.audio")


@asynccontextmanager
async def assemble(settings: AudioSettings) -> AsyncIterator[Mapping[ServiceDescriptor, AudioServicer]]:
    """The service, its model loaded and warm. Exits the process with 2 when the model cannot be opened."""
    recognizer = await _open(settings)
    needs = await asyncio.to_thread(_warm_up, recognizer, settings)
    scheduler = TranscriptionScheduler(settings.workers)
    decoder = RecordingDecoder(RecordingLimits(settings.max_duration_s, settings.max_pcm_bytes))
    admission = Admission(
        scheduler, needs, settings.max_streams, settings.recordings, settings.max_load, settings.workers
    )
    try:
        yield {_SERVICE: AudioServicer(recognizer, recognizer.languages, scheduler, admission, decoder, settings)}
    finally:
        await scheduler.close()
        await decoder.close()


async def _open(settings: AudioSettings) -> Whisper:
    try:
        return await asyncio.to_thread(_load, settings)
    except BadModel as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


def _load(settings: AudioSettings) -> Whisper:
    device = _device() if settings.device == "auto" else settings.device
    compute_type = _COMPUTE_TYPES[device] if settings.compute_type == "auto" else settings.compute_type
    try:
        recognizer = open_whisper(
            settings.model,
            device,
            compute_type,
            _threads(settings),
            settings.shortest_window_s or None,
            settings.workers,
        )
    except (RuntimeError, ValueError, OSError) as error:  # CTranslate2's and the hub's
        raise BadModel(f"model {settings.model} on {device} as {compute_type}: {error}") from error
    if settings.language and settings.language not in recognizer.languages:
        raise BadModel(f"language: one that {settings.model} knows, got {settings.language}")
    return recognizer


def _device() -> str:
    import ctranslate2

    return "cuda" if ctranslate2.get_cuda_device_count() else "cpu"


def _threads(settings: AudioSettings) -> int:
    """The configured threads, or the usable cores divided by the workers."""
    return settings.threads or max(1, min(_MOST_THREADS, usable_cores() // settings.workers))


def _warm_up(recognizer: Whisper, settings: AudioSettings) -> dict[str, Need]:
    """Run the model as for speech, and say from that how much of it a stream of each policy will need at first."""
    step_cost_s, window_cost_s = recognizer.cost_s(_HELD_S), recognizer.cost_s(settings.window_s)
    _log.info("%s on %s transcribes %g s in %.0f ms", recognizer.name, recognizer.device, _HELD_S, step_cost_s * 1000)
    return {
        "windows": Need(window_cost_s, max(settings.window_s - settings.overlap_s, 0.5)),
        "local_agreement": Need(step_cost_s, max(_EVERY_S, settings.step_ms / 1000)),
    }


if __name__ == "__main__":
    serve.main("audio", AudioSettings, [_SERVICE], assemble)
