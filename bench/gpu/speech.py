"""What a CUDA GPU does for speech: `python -m bench.gpu.speech --model FOLDER --out FILE`.

Compares texts of compute types with the CPU's, recordings by the service's recognizer with faster-whisper itself, live
streams through the service, and larger Whispers whose weights are random. Each section is written when it is done; one
that fails says why, and the next one runs. Until now it has run on a CPU alone (`--quick`).
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import ctranslate2
import grpc
import numpy as np
import soundfile

from bench.cluster import clustered
from bench.gpu.whisper_shapes import SHAPES, timed, timed_shape
from bench.speech import RATE, Said, Samples, compare, played
from bench.stats import cpu_s, percentiles
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from services.audio.audio_decoding import Decoding, RecordingLimits
from services.audio.engine import Task
from services.audio.speech import written
from services.audio.whisper import Whisper, open_whisper
from services.runtime.process.cores import usable_cores

ROOT = Path(__file__).parents[2]
PARAGRAPH, JFK = ROOT / "samples/voices/paragraph.flac", ROOT / "tests/recordings/jfk.flac"
TYPES = {"cuda": ("float16", "int8_float16", "bfloat16"), "cpu": ("int8", "float32")}
STREAM_S, START_S = 20.0, 1.0  # of a live stream, over which they begin


@dataclass(frozen=True)
class Plan:
    """The things measured, the place and the amount."""

    model: Path
    device: str
    quick: bool

    @property
    def best(self) -> str:
        return TYPES[self.device][0]

    @property
    def batches(self) -> tuple[int, ...]:
        return (1, 2) if self.quick else (1, 4, 8, 16, 32)

    @property
    def recording_s(self) -> float:
        return 40.0 if self.quick else 600.0

    @property
    def live(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return ((1, (1, 2)),) if self.quick else ((1, (32, 128)), (4, (128, 64)), (1, (1, 8)))


def main() -> None:
    """Run the sections until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Folder of a CTranslate2 Whisper.")
    parser.add_argument("--device", default="cuda" if ctranslate2.get_cuda_device_count() else "cpu")
    parser.add_argument("--seconds", type=float, default=130.0, help="No section begins later.")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write.")
    parser.add_argument("--quick", action="store_true", help="Measure little, to try the script.")
    given = parser.parse_args()
    plan = Plan(given.model, given.device, given.quick)
    results: dict[str, Any] = {}
    began = time.monotonic()
    for name, section in sections(plan).items():
        if time.monotonic() - began > given.seconds:
            results[name] = "skipped: the time is over"
        else:
            results[name] = tried(section)
        results[f"{name} at_s"] = round(time.monotonic() - began, 1)
        print(name, json.dumps(results[name]), flush=True)
        given.out.write_text(json.dumps(results, indent=1))


def sections(plan: Plan) -> Mapping[str, Callable[[], Any]]:
    """In the order of their value."""
    live = {
        f"live, {workers} workers, {count} streams": partial(played_live, plan, workers, count)
        for workers, counts in plan.live
        for count in counts
    }
    first, *others = live
    shapes = {f"shape {name}": partial(timed_shape, name, plan.device, plan.quick) for name in SHAPES}
    return {
        "device": lambda: describe(plan),
        "text cpu int8": lambda: texts(plan, "cpu", "int8"),
        **{f"text {plan.device} {each}": partial(texts, plan, plan.device, each) for each in TYPES[plan.device]},
        "recordings": lambda: recordings(plan),
        first: live[first],
        others[0]: live[others[0]],
        **shapes,
        **{name: live[name] for name in others[1:]},
    }


def tried(section: Callable[[], Any]) -> Any:
    """Figures that were found, or how it failed."""
    try:
        return section()
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"}


def describe(plan: Plan) -> dict[str, Any]:
    """The device, and the compute types that CTranslate2 has for it."""
    return {
        "device": plan.device,
        "devices": ctranslate2.get_cuda_device_count(),
        "types": sorted(ctranslate2.get_supported_compute_types(plan.device)),
        "cores": usable_cores(),
    }


@cache
def samples(path: Path) -> Samples:
    """A recording as the service decodes it."""
    decoding = Decoding(path.read_bytes(), RecordingLimits(3_600, 2**30))
    while decoding.step():
        pass
    return np.asarray(decoding.recording().audio, np.float32)


def long_recording(seconds: float) -> Samples:
    """The paragraph and the speech in turns, with a quiet room's noise between and below."""
    parts: list[Samples] = []
    while sum(map(len, parts)) < seconds * RATE:
        parts += [samples(PARAGRAPH if len(parts) % 4 else JFK), np.zeros(RATE // 2, np.float32)]
    whole = np.concatenate(parts)[: round(seconds * RATE)]
    return whole + np.random.default_rng(0).normal(0, 1e-3, len(whole)).astype(np.float32)


def transcript(model: Whisper, audio: Samples, batch: int) -> str:
    """The text of a recording by the service's recognizer."""
    return "".join(written(each.words) for each in model.transcribe(audio, Task("en"), lambda: batch)).strip()


def opened(plan: Plan, device: str, compute_type: str) -> Whisper:
    """The service's recognizer."""
    return open_whisper(str(plan.model), device, compute_type, min(8, usable_cores()))


def texts(plan: Plan, device: str, compute_type: str) -> dict[str, Any]:
    """Texts of recordings and of utterances, and how long loading, the first and later utterances took."""
    began = time.monotonic()
    model = opened(plan, device, compute_type)
    loaded = time.monotonic()
    utterance = samples(JFK)
    said = model.transcribe_utterance(utterance, "")
    first = time.monotonic()
    again = [timed(lambda: model.transcribe_utterance(utterance, "en")) for _ in range(2 if plan.quick else 10)]
    return {
        "load_s": round(loaded - began, 2),
        "first_s": round(first - loaded, 2),
        "utterance_s": round(median(again), 4),
        "language": said.language,
        "utterance": written(said.words),
        **{f"{path.stem} in {n}": transcript(model, samples(path), n) for path in (JFK, PARAGRAPH) for n in (1, 4)},
    }


def recordings(plan: Plan) -> dict[str, Any]:
    """Seconds of audio in a second: the faster of two runs, after a run over 90 s that warms up."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    audio, mine = long_recording(plan.recording_s), opened(plan, plan.device, plan.best)
    plain = WhisperModel(str(plan.model), device=plan.device, compute_type=plan.best)
    pipeline = BatchedInferencePipeline(plain)
    short = audio[: 60 * RATE]

    def theirs(batch: int, *, words: bool) -> Callable[[Samples], Any]:
        return lambda heard: list(pipeline.transcribe(heard, batch_size=batch, language="en", word_timestamps=words)[0])

    ways: dict[str, tuple[Callable[[Samples], Any], Samples]] = {
        "transcribe, 60 s": (lambda heard: list(plain.transcribe(heard, language="en")[0]), short),
        "service in 1, 60 s": (lambda heard: transcript(mine, heard, 1), short),
    }
    for batch in plan.batches:
        ways[f"service in {batch}"] = (partial(transcript, mine, batch=batch), audio)
        ways[f"pipeline in {batch}"] = (theirs(batch, words=False), audio)
    ways[f"pipeline in {plan.batches[-1]} with words"] = (theirs(plan.batches[-1], words=True), audio)
    return {name: tried(partial(factor, way, heard, plan)) for name, (way, heard) in ways.items()}


def factor(way: Callable[[Samples], Any], heard: Samples, plan: Plan) -> dict[str, float]:
    """How much faster than real time a way is."""
    way(heard[: 90 * RATE])
    took = [timed(lambda: way(heard)) for _ in range(1 if plan.quick else 2)]
    return {"s": round(min(took), 3), "times_real_time": round(len(heard) / RATE / min(took), 1)}


def played_live(plan: Plan, workers: int, count: int) -> dict[str, Any]:
    return asyncio.run(live_streams(plan, workers, count))


async def live_streams(plan: Plan, workers: int, count: int) -> dict[str, Any]:
    """So many streams in real time: the delay from a word's end to its confirmation, and the streams refused."""
    stream_s = 12.0 if plan.quick else STREAM_S
    audio = long_recording(stream_s)
    async with clustered(lambda said: print(said, flush=True)) as cluster:
        process = await cluster.start(
            "audio", "services.audio", model=str(plan.model), device=plan.device, language="en",
            compute_type=plan.best, workers=workers, max_streams=4_096, max_load=1.0,
        )  # fmt: skip
        stub: Any = audio_pb2_grpc.AudioServiceStub(await cluster.channel(process))  # type: ignore[no-untyped-call]
        truth = await said_in(stub, audio)
        before, began = cpu_s(process.pid), time.monotonic()
        streams = (_one(stub, audio, START_S * at / count) for at in range(count))
        heard = await asyncio.gather(*streams)
        seconds, spent = time.monotonic() - began, cpu_s(process.pid) - before
    delays = [delay for each in heard if isinstance(each, list) for delay in late(truth, each)]
    refused = [each for each in heard if isinstance(each, str)]
    return {
        "refused": len(refused),
        "why": sorted(set(refused))[:3],
        "delay_s": percentiles(delays) if len(delays) > 1 else {},
        "words": len(delays),
        "words_said": len(truth) * (count - len(refused)),
        "took_s": round(seconds, 1),
        "cpu_cores": round(spent / seconds, 2),
    }


async def _one(stub: Any, audio: Samples, after_s: float) -> list[tuple[str, float]] | str:
    await asyncio.sleep(after_s)
    try:
        return (await played(stub, audio)).words
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {(error.details() or '')[:60]}"


def late(truth: list[Said], words: list[tuple[str, float]]) -> list[float]:
    """By how many seconds each word that was understood came after its end."""
    same = compare([each.text for each in truth], [text for text, _ in words]).same
    return [words[there][1] - truth[here].end_s for here, there in same]


async def said_in(stub: Any, audio: Samples) -> list[Said]:
    """The words of a recording, with their times, by the service itself."""
    file = io.BytesIO()
    soundfile.write(file, audio, RATE, format="WAV", subtype="PCM_16")
    options = audio_pb2.TranscribeOptions(words=True)
    pieces = [file.getvalue()[at : at + 65_536] for at in range(0, len(file.getvalue()), 65_536)]
    requests = (audio_pb2.TranscribeRequest(options=None if at else options, data=d) for at, d in enumerate(pieces))

    replies = [reply async for reply in stub.Transcribe(requests, timeout=60)]
    return [Said(word.text, word.end_s) for reply in replies for word in reply.segment.words]


if __name__ == "__main__":
    main()
