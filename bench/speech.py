"""How the audio service with a public Whisper compares with faster-whisper itself, and how far behind a speaker it is.

Joins spoken sentences with pauses of 0.2 to 1.2 s, and transcribes them in turns: by faster-whisper's `transcribe`, its
`BatchedInferencePipeline`, and the service through gRPC, all with the same model and threads. Then plays them to the
service in real time. $HEDGEROW_BENCH_WHISPER is the model (a folder; otherwise the catalogue's whisper-base),
$HEDGEROW_BENCH_RECORDINGS a folder of recordings with `texts.json` (otherwise tests/recordings).
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import jiwer
import numpy as np
import psutil
import soundfile
import soxr
from rich.table import Table

from bench.audio import PIECE, POLICIES, Heard, play, service
from bench.llm import Progress
from bench.spoken import NOISE, RATE, Recording, Said, Samples, compare
from bench.stats import percentiles
from hedgerow.audio.v1 import audio_pb2
from launcher.catalog import store

LENGTHS = {"11 s": 11.0, "1 min": 60.0, "4 min": 240.0, "10 min": 600.0}
ROUNDS = 3
LIVE_S = 120.0
STREAMS = (1, 2)
THREADS = len(os.sched_getaffinity(0))
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Spoken:
    """Sentences with pauses between them, and what was said."""

    recording: Recording
    sentences: tuple[str, ...]

    def wav(self) -> bytes:
        file = io.BytesIO()
        soundfile.write(file, self.recording.samples, RATE, format="WAV", subtype="PCM_16")
        return file.getvalue()

    def wrong(self, text: str) -> float:
        """The share of words that a transcript has wrong, after Whisper's own normalization of English."""
        normal = _normalizer()
        return float(jiwer.wer(normal(" ".join(self.sentences)), normal(text)))


@dataclass(frozen=True)
class Written:
    """A transcript. `sentences`: segments that end as sentences do."""

    took_s: float
    text: str
    sentences: int


async def run(progress: Progress, lengths: Sequence[str] = tuple(LENGTHS)) -> dict[str, object]:
    """Measure. About a quarter of an hour."""
    model = _model()
    with tempfile.TemporaryDirectory() as folder:
        async with service(Path(folder), model, THREADS=str(THREADS)) as (stub, process):
            ways = _ways(model, stub)
            whole = {name: await _whole(name, ways, progress) for name in lengths}
            live: dict[str, object] = {}
            for count in STREAMS:
                progress(f"speech: {count} × {LIVE_S:.0f} s in real time")
                live[str(count)] = await _live(stub, process, [joined(LIVE_S, seed) for seed in range(count)], ways)
    return {"model": model.name, "threads": THREADS, "whole": whole, "live": live}


def _model() -> Path:
    asked = os.environ.get("HEDGEROW_BENCH_WHISPER")
    return Path(asked) if asked else store.path("whisper-base")


def joined(seconds: float, seed: int = 0) -> Spoken:
    """Sentences of the recordings, in an order of their own, until there are so many seconds."""
    folder = Path(os.environ.get("HEDGEROW_BENCH_RECORDINGS", ROOT / "tests" / "recordings"))
    texts: dict[str, str] = json.loads((folder / "texts.json").read_text())
    rng, parts, sentences, length = random.Random(seed), [], [], 0.0
    names: list[str] = []
    while length < seconds:
        names = names or rng.sample(sorted(texts), len(texts))
        name = names.pop()
        parts += [_read(folder / name), np.zeros(round(rng.uniform(0.2, 1.2) * RATE), np.float32)]
        sentences.append(texts[name])
        length += (len(parts[-1]) + len(parts[-2])) / RATE
    samples = np.concatenate(parts)
    noise = np.random.default_rng(seed).normal(0, NOISE, len(samples)).astype(np.float32)
    return Spoken(Recording(samples + noise, ()), tuple(sentences))


@cache
def _read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32")
    return np.asarray(soxr.resample(samples, rate, RATE), np.float32)


@cache
def _normalizer() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    return EnglishTextNormalizer({})  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Ways:
    """The three ways to write a recording down, and the times of its words."""

    by_name: Mapping[str, Callable[[Spoken], Awaitable[Written]]]
    words: Callable[[Samples], tuple[Said, ...]]


def _ways(folder: Path, stub: Any) -> Ways:
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=THREADS)
    batched = BatchedInferencePipeline(model)

    def locally(transcribe: Callable[..., Any], **options: Any) -> Callable[[Spoken], Awaitable[Written]]:
        async def write(spoken: Spoken) -> Written:
            began = time.monotonic()
            texts = await asyncio.to_thread(
                lambda: [each.text.strip() for each in transcribe(spoken.recording.samples, **options)[0]]
            )
            return _written(began, texts)

        return write

    async def through_grpc(spoken: Spoken) -> Written:
        data = spoken.wav()

        async def requests() -> AsyncIterator[audio_pb2.TranscribeRequest]:
            for start in range(0, len(data), PIECE):
                yield audio_pb2.TranscribeRequest(data=data[start : start + PIECE])

        began = time.monotonic()
        replies = [reply async for reply in stub.Transcribe(requests(), timeout=600)]
        return _written(began, [reply.segment.text for reply in replies if reply.HasField("segment")])

    def words(samples: Samples) -> tuple[Said, ...]:
        segments, _ = batched.transcribe(samples, batch_size=1, word_timestamps=True, language="en")
        return tuple(Said(word.word.strip(), word.end) for segment in segments for word in segment.words or ())

    by_name = {
        "plain": locally(model.transcribe),
        "batched": locally(batched.transcribe, batch_size=8),
        "service": through_grpc,
    }
    return Ways(by_name, words)


def _written(began: float, texts: list[str]) -> Written:
    return Written(time.monotonic() - began, " ".join(texts), sum(text.endswith((".", "?", "!")) for text in texts))


async def _whole(name: str, ways: Ways, progress: Progress) -> dict[str, object]:
    """Every way in turn, several times."""
    spoken = joined(LENGTHS[name])
    found: dict[str, list[Written]] = {way: [] for way in ways.by_name}
    for turn in range(ROUNDS):
        for way, write in ways.by_name.items():
            if turn and way == "plain":  # slow, and only there to be seen once
                continue
            progress(f"speech: {name}, {way}")
            found[way].append(await write(spoken))
    rows: dict[str, object] = {
        way: {
            "s": round(median(each.took_s for each in written), 2),
            "wer": round(spoken.wrong(written[0].text), 4),
            "sentences": written[0].sentences,
        }
        for way, written in found.items()
    }
    return {"ways": rows, "sentences": len(spoken.sentences), "seconds": round(spoken.recording.seconds, 1)}


async def _live(stub: Any, process: psutil.Process, spoken: Sequence[Spoken], ways: Ways) -> dict[str, float]:
    """All at once, in real time. A word's end is what faster-whisper found of the whole recording."""
    ends = [await asyncio.to_thread(ways.words, each.recording.samples) for each in spoken]
    before = process.cpu_times()
    policy = POLICIES["local_agreement"]
    heard: list[Heard] = await asyncio.gather(*(play(stub, policy, each.recording) for each in spoken))
    after, seconds = process.cpu_times(), max(each.recording.seconds for each in spoken)
    late = percentiles(
        [
            found.words[there][1] - said[here].end_s
            for said, found in zip(ends, heard, strict=True)
            for here, there in compare([word.text for word in said], [text for text, _ in found.words]).same
        ]
    )
    cpu_s = after.user + after.system - before.user - before.system
    wrong = [each.wrong(" ".join(text for text, _ in found.words)) for each, found in zip(spoken, heard, strict=True)]
    return {
        "delay_p50_s": late["p50"],
        "delay_p95_s": late["p95"],
        "wer": round(sum(wrong) / len(wrong), 4),
        "busy": round(sum(each.busy_s for each in heard) / sum(each.recording.seconds for each in spoken), 3),
        "cpu_cores": round(cpu_s / seconds, 2),
        "behind_events": sum(each.behind for each in heard),
    }


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    table = Table("recording", "way", "s", "over batched", "words wrong", "sentences", title="Public Whisper")
    for name, found in result["whole"].items():
        for way, row in found["ways"].items():
            ratio = row["s"] / found["ways"]["batched"]["s"]
            count = f"{row['sentences']} of {found['sentences']}"
            table.add_row(name, way, f"{row['s']:.2f}", f"{ratio:.2f}", f"{row['wer']:.1%}", count)
        table.add_section()
    for count, row in result["live"].items():
        late = f"{row['delay_p50_s']:.2f} / {row['delay_p95_s']:.2f} s"
        table.add_row("live", f"{count} streams", "", late, f"{row['wer']:.1%}", f"busy {row['busy']:.0%}")
    table.caption = f"{result['model']}, int8, {result['threads']} threads. Live: p50 / p95 behind the end of a word."
    return table
