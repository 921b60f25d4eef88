"""How far behind the speaker the audio service writes, how right it is, and what that costs.

Plays eSpeak's voices to the real service in real time, one to four streams at once, under both policies, and takes the
time from the end of each word to the event that confirms it.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import psutil
import soundfile
from rich.table import Table

from bench.llm import Progress
from bench.spoken import RATE, Recording, compare, recording
from bench.stats import percentiles
from hedgerow.audio.v1 import audio_pb2, audio_pb2_grpc
from hedgerow.channel import open_channel
from launcher.processes import ServiceProcess, ServiceSpec, free_port
from tests.models import WHISPER

SENTENCES = 200  # of the recording
SECONDS = 120.0  # of each stream, at least
STREAMS = (1, 2, 4)
POLICIES = {
    "local_agreement": audio_pb2.POLICY_LOCAL_AGREEMENT,
    "windows": audio_pb2.POLICY_WINDOWS,
}
PACKET_S = 0.06
PIECE = 65_536  # bytes of a recording in one message
START_S = 120.0
MODEL = WHISPER


@dataclass
class Heard:
    """What came back for one stream. `words`: each with the second of the stream in which it was confirmed."""

    words: list[tuple[str, float]] = field(default_factory=list)
    behind: int = 0
    busy_s: float = 0.0
    _confirmed: int = 0  # words of the segment that is being spoken

    def add(self, reply: audio_pb2.TranscribeStreamResponse, at_s: float) -> None:
        """Take an event that came at a time."""
        kind = reply.WhichOneof("kind")
        if kind == "partial":
            self._confirm(reply.partial.words[: reply.partial.confirmed], at_s)
        elif kind == "segment":
            self._confirm(reply.segment.words, at_s)
            self._confirmed = 0
        elif kind == "behind":
            self.behind += 1
        elif kind == "summary":
            self.busy_s = reply.summary.busy_s

    def _confirm(self, words: Sequence[audio_pb2.Word], at_s: float) -> None:
        self.words += ((word.text, at_s) for word in words[self._confirmed :])
        self._confirmed = len(words)


async def run(progress: Progress, seconds: float = SECONDS, streams: Sequence[int] = STREAMS) -> dict[str, object]:
    """Start the service, measure, stop it. About a quarter of an hour."""
    progress("audio: eSpeak reads the sentences")
    spoken = [recording(_sentences(seconds), seed) for seed in range(1, max(streams) + 1)]
    with tempfile.TemporaryDirectory() as folder:
        async with service(Path(folder)) as (stub, process):
            offline = await _offline(stub, progress)
            policies: dict[str, dict[str, object]] = {name: {} for name in POLICIES}
            for name, policy in POLICIES.items():
                for count in streams:
                    progress(f"audio: {count} × {seconds:.0f} s of speech in real time, {name}")
                    policies[name][str(count)] = await _live(stub, process, policy, spoken[:count])
    return {"offline": offline, "policies": policies, "samples": {"sentences": SENTENCES, "stream_s": seconds}}


def _sentences(seconds: float) -> int:
    return int(seconds / 2.7) + 1  # they take 2.7 s with their pauses


async def _offline(stub: Any, progress: Progress) -> dict[str, float]:
    progress(f"audio: a recording of {SENTENCES} sentences")
    spoken, file = recording(SENTENCES), io.BytesIO()
    soundfile.write(file, spoken.samples, RATE, format="WAV", subtype="PCM_16")
    data = file.getvalue()

    async def requests() -> AsyncIterator[audio_pb2.TranscribeRequest]:
        for start in range(0, len(data), PIECE):
            yield audio_pb2.TranscribeRequest(data=data[start : start + PIECE])

    summary = audio_pb2.TranscribeSummary()
    async for reply in stub.Transcribe(requests(), timeout=300):
        summary = reply.summary
    rate = compare([word.text for word in spoken.words], summary.text.split()).rate
    return {"wer": round(rate, 4), "rtf": round(summary.busy_s / summary.audio_s, 4)}


async def _live(
    stub: Any, process: psutil.Process, policy: audio_pb2.Policy, spoken: Sequence[Recording]
) -> dict[str, float]:
    """All recordings at once, in real time."""
    before, began = process.cpu_times(), time.monotonic()
    heard = await asyncio.gather(*(play(stub, policy, each) for each in spoken))
    after, took_s = process.cpu_times(), time.monotonic() - began
    cpu_s = after.user + after.system - before.user - before.system
    compared = [
        compare([word.text for word in each.words], [text for text, _ in found.words])
        for each, found in zip(spoken, heard, strict=True)
    ]
    delays = [
        (each.words[said].end_s, found.words[written][1] - each.words[said].end_s)
        for each, found, aligned in zip(spoken, heard, compared, strict=True)
        for said, written in aligned.same
    ]
    late = percentiles([delay for _, delay in delays])
    return {
        "delay_p50_s": late["p50"],
        "delay_p95_s": late["p95"],
        "delay_p99_s": late["p99"],
        "drift_s": _drift_s(delays, max(each.seconds for each in spoken)),
        "wer": round(mean(each.rate for each in compared), 4),
        "rtf": round(sum(each.busy_s for each in heard) / sum(each.seconds for each in spoken), 4),
        "cpu_cores": round(cpu_s / took_s, 3),
        "behind_events": sum(each.behind for each in heard),
        "words": len(delays),
    }


def _drift_s(delays: Sequence[tuple[float, float]], seconds: float) -> float:
    """The median delay in the last third, less that in the first one."""
    first = median(delay for end_s, delay in delays if end_s < seconds / 3)
    last = median(delay for end_s, delay in delays if end_s > 2 * seconds / 3)
    return round(last - first, 3)


async def play(stub: Any, policy: audio_pb2.Policy, spoken: Recording) -> Heard:
    """Send each packet when its last sample would have been spoken."""
    pcm = (np.clip(spoken.samples, -1, 1) * 32_767).astype("<i2")
    size = round(PACKET_S * RATE)
    form = audio_pb2.AudioFormat(encoding=audio_pb2.ENCODING_PCM_S16LE, sample_rate_hz=RATE, channels=1)
    began = time.monotonic()

    async def requests() -> AsyncIterator[audio_pb2.TranscribeStreamRequest]:
        yield audio_pb2.TranscribeStreamRequest(options=audio_pb2.StreamOptions(format=form, policy=policy))
        for start in range(0, len(pcm), size):
            packet = pcm[start : start + size]
            await asyncio.sleep(began + (start + len(packet)) / RATE - time.monotonic())
            yield audio_pb2.TranscribeStreamRequest(audio=packet.tobytes())

    heard = Heard()
    async for reply in stub.TranscribeStream(requests(), timeout=spoken.seconds + 60):
        heard.add(reply, time.monotonic() - began)
    return heard


@asynccontextmanager
async def service(folder: Path, model: Path = MODEL, **more: str) -> AsyncIterator[tuple[Any, psutil.Process]]:
    """The audio service with a model and more settings, serving."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"ADDRESS": address, "MODEL": str(model), **more}
    environment = {f"HEDGEROW_AUDIO_{key}": value for key, value in settings.items()}
    process = ServiceProcess(ServiceSpec("audio", "services.audio", address, environment), folder)
    try:
        await process.wait_serving(START_S)
        async with open_channel(address) as channel:
            yield audio_pb2_grpc.AudioServiceStub(channel), psutil.Process(process.pid)  # type: ignore[no-untyped-call]
    finally:
        await process.stop()


def table(result: Mapping[str, Any]) -> Table:
    """The result, for people."""
    columns = ("p50, s", "p95, s", "drift, s", "word errors", "busy", "CPU, cores")
    table = Table("policy", "streams", *columns, title="The audio service: from the end of a word to its confirmation")
    for name, counts in result["policies"].items():
        for count, row in counts.items():
            late = (f"{row[key]:.2f}" for key in ("delay_p50_s", "delay_p95_s", "drift_s"))
            table.add_row(name, count, *late, f"{row['wer']:.1%}", f"{row['rtf']:.1%}", f"{row['cpu_cores']:.2f}")
        table.add_section()
    offline = result["offline"]
    table.add_row("a recording", "", "", "", "", f"{offline['wer']:.1%}", f"{offline['rtf']:.1%}", "")
    table.caption = (
        f"Each stream plays {result['samples']['stream_s']:.0f} s; the recording has {result['samples']['sentences']} "
        "sentences. Busy: the time the model worked for a stream, over its length."
    )
    return table
