"""How the audio service with a public Whisper compares with faster-whisper itself, and how far behind a speaker it is.

Joins spoken sentences with pauses of 0.2 to 1.2 s, and transcribes them in turns: by faster-whisper's `transcribe`, its
`BatchedInferencePipeline`, and the service through gRPC, all with the same model and threads. Then plays them to the
service in real time. The model is whisper-base (`hedgerow models pull whisper-base`).
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import jiwer
import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from bench.asking import in_turns
from bench.cluster import Progress, clustered
from bench.stats import cpu_s, percentiles
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from launcher.catalog import store
from services.runtime.process.cores import usable_cores

LENGTHS = {"11 s": 11.0, "1 min": 60.0, "10 min": 600.0}
ROUNDS = 3
LIVE_S = 120.0
LIVE = (1, 2)  # streams at once
THREADS = usable_cores()
RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
RATE = 16_000  # Hz
NOISE = 1e-3  # a quiet room, -60 dB: microphones know no digital silence
PACKET_S = 0.06
PIECE = 65_536  # bytes of a recording in one message
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Said:
    """A word, and when it is over."""

    text: str
    end_s: float


@dataclass(frozen=True)
class Spoken:
    """Sentences with pauses between them, mono at `RATE`, and what was said."""

    samples: Samples
    sentences: tuple[str, ...]

    def wav(self) -> bytes:
        file = io.BytesIO()
        soundfile.write(file, self.samples, RATE, format="WAV", subtype="PCM_16")
        return file.getvalue()

    def wrong(self, text: str) -> float:
        """The share of words that a transcript has wrong, after Whisper's own normalization of English."""
        normal = _normalizer()
        return float(jiwer.wer(normal(" ".join(self.sentences)), normal(text)))


@dataclass(frozen=True)
class Written:
    """A transcript."""

    took_s: float
    text: str


@dataclass
class Heard:
    """The transcript of one stream. `words`: each with the second of the stream in which it was confirmed."""

    words: list[tuple[str, float]] = field(default_factory=list)
    _confirmed: int = 0  # words of the segment that is being spoken

    def add(self, reply: audio_pb2.TranscribeStreamResponse, at_s: float) -> None:
        """Take an event that came at a time."""
        match reply.WhichOneof("kind"):
            case "partial":
                self._confirm(reply.partial.words[: reply.partial.confirmed], at_s)
            case "segment":
                self._confirm(reply.segment.words, at_s)
                self._confirmed = 0

    def _confirm(self, words: Sequence[audio_pb2.Word], at_s: float) -> None:
        self.words += ((word.text, at_s) for word in words[self._confirmed :])
        self._confirmed = len(words)


async def run(progress: Progress) -> dict[str, object]:
    """Measure. About a quarter of an hour."""
    model = store.path("whisper-base")
    async with clustered(progress) as cluster:
        process = await cluster.start("audio", "services.audio", model=str(model), threads=THREADS)
        stub: Any = audio_pb2_grpc.AudioServiceStub(await cluster.channel(process))  # type: ignore[no-untyped-call]
        ways, words = _ways(model, stub)
        whole: dict[str, object] = {}
        for name, seconds in LENGTHS.items():
            progress(f"a recording of {name}, {ROUNDS} times by each of {', '.join(ways)}")
            spoken = joined(seconds)
            found = await in_turns({way: partial(_written, of=spoken, by=write) for way, write in ways.items()}, ROUNDS)
            whole[name] = {way: _summary(spoken, written) for way, written in found.items()}
        live: dict[str, object] = {}
        for count in LIVE:
            progress(f"{count} × {LIVE_S:.0f} s in real time")
            streams = [joined(LIVE_S, seed) for seed in range(count)]
            ends = [await asyncio.to_thread(words, each.samples) for each in streams]
            live[str(count)] = await _live(stub, process.pid, streams, ends)
    return {"model": model.name, "threads": THREADS, "whole": whole, "live": live}


def joined(seconds: float, seed: int = 0) -> Spoken:
    """Sentences of the recordings, in an order of their own, until there are so many seconds."""
    texts: dict[str, str] = json.loads((RECORDINGS / "texts.json").read_text())
    rng, parts, sentences, length = random.Random(seed), [], [], 0.0
    names: list[str] = []
    while length < seconds:
        names = names or rng.sample(sorted(texts), len(texts))
        name = names.pop()
        parts += [_read(RECORDINGS / name), np.zeros(round(rng.uniform(0.2, 1.2) * RATE), np.float32)]
        sentences.append(texts[name])
        length += (len(parts[-1]) + len(parts[-2])) / RATE
    samples = np.concatenate(parts)
    noise = np.random.default_rng(seed).normal(0, NOISE, len(samples)).astype(np.float32)
    return Spoken(samples + noise, tuple(sentences))


@dataclass(frozen=True)
class Compared:
    """`rate`: the word error rate. `same`: which word of the truth is which of the heard ones."""

    rate: float
    same: tuple[tuple[int, int], ...]


def compare(truth: Sequence[str], heard: Sequence[str]) -> Compared:
    """Align what was heard with what was said, word by word. A word such as `nine-tenths` counts as one."""
    one, other = [_single(word) for word in truth], [_single(word) for word in heard]
    found = jiwer.process_words(" ".join(one), " ".join(other))
    same = (
        pair
        for chunk in found.alignments[0]
        if chunk.type == "equal"
        for pair in zip(
            range(chunk.ref_start_idx, chunk.ref_end_idx), range(chunk.hyp_start_idx, chunk.hyp_end_idx), strict=True
        )
    )
    return Compared(float(found.wer), tuple(same))


def _single(word: str) -> str:
    bare = "".join(re.sub(r"[^\w\s]", "", word.lower()).split())
    return bare or "-"  # punctuation alone would be no word, and shift those after it


@cache
def _read(path: Path) -> Samples:
    samples, rate = soundfile.read(path, dtype="float32")
    return np.asarray(soxr.resample(samples, rate, RATE), np.float32)


@cache
def _normalizer() -> Callable[[str], str]:
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    return EnglishTextNormalizer({})  # type: ignore[no-any-return]


Write = Callable[[Spoken], Awaitable[list[str]]]  # a recording's segments


def _ways(folder: Path, stub: Any) -> tuple[Mapping[str, Write], Callable[[Samples], tuple[Said, ...]]]:
    """The three ways to write a recording down, and what finds the times of its words."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=THREADS)
    batched = BatchedInferencePipeline(model)

    def locally(transcribe: Callable[..., Any], **options: Any) -> Write:
        def write(spoken: Spoken) -> list[str]:
            return [each.text.strip() for each in transcribe(spoken.samples, **options)[0]]

        return lambda spoken: asyncio.to_thread(write, spoken)

    async def through_grpc(spoken: Spoken) -> list[str]:
        data = spoken.wav()

        async def requests() -> AsyncIterator[audio_pb2.TranscribeRequest]:
            for start in range(0, len(data), PIECE):
                yield audio_pb2.TranscribeRequest(data=data[start : start + PIECE])

        replies = [reply async for reply in stub.Transcribe(requests(), timeout=600)]
        return [reply.segment.text for reply in replies if reply.HasField("segment")]

    def words(samples: Samples) -> tuple[Said, ...]:
        segments, _ = batched.transcribe(samples, batch_size=1, word_timestamps=True, language="en")
        return tuple(Said(word.word.strip(), word.end) for segment in segments for word in segment.words or ())

    ways = {
        "plain": locally(model.transcribe),
        "batched": locally(batched.transcribe, batch_size=8),
        "service": through_grpc,
    }
    return ways, words


async def _written(number: int, of: Spoken, by: Write) -> Written:
    began = time.monotonic()
    texts = await by(of)
    return Written(time.monotonic() - began, " ".join(texts))


def _summary(spoken: Spoken, written: Sequence[Written]) -> dict[str, float]:
    return {"s": round(median(each.took_s for each in written), 2), "wer": round(spoken.wrong(written[0].text), 4)}


async def _live(stub: Any, pid: int, spoken: Sequence[Spoken], ends: Sequence[Sequence[Said]]) -> dict[str, float]:
    """All at once, in real time. A word's end is what faster-whisper found of the whole recording."""
    before = cpu_s(pid)
    heard = await asyncio.gather(*(played(stub, each.samples) for each in spoken))
    spent_s, seconds = cpu_s(pid) - before, [len(each.samples) / RATE for each in spoken]
    late = percentiles(
        [
            found.words[there][1] - said[here].end_s
            for said, found in zip(ends, heard, strict=True)
            for here, there in compare([word.text for word in said], [text for text, _ in found.words]).same
        ]
    )
    return {**{f"delay_{name}_s": value for name, value in late.items()}, "cpu_cores": round(spent_s / max(seconds), 2)}


async def played(stub: Any, samples: Samples) -> Heard:
    """Send each packet when its last sample would have been spoken."""
    pcm = (np.clip(samples, -1, 1) * 32_767).astype("<i2")
    size = round(PACKET_S * RATE)
    form = audio_pb2.AudioFormat(encoding=audio_pb2.ENCODING_PCM_S16LE, sample_rate_hz=RATE, channels=1)
    options = audio_pb2.StreamOptions(format=form)
    began = time.monotonic()

    async def requests() -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
        yield audio_pb2.TranscribeStreamRequest(options=options)
        for start in range(0, len(pcm), size):
            packet = pcm[start : start + size]
            await asyncio.sleep(began + (start + len(packet)) / RATE - time.monotonic())
            yield audio_pb2.TranscribeStreamRequest(audio=packet.tobytes())

    heard = Heard()
    async for reply in stub.TranscribeStream(requests(), timeout=len(samples) / RATE + 60):
        heard.add(reply, time.monotonic() - began)
    return heard
