"""A speech model that says what the script says, and what a call to the service needs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from opentelemetry import trace

from hedgerow.audio.v1 import audio_pb2
from services.audio.admission import Admission, Need
from services.audio.audio_decoding import RecordingLimits
from services.audio.config import AudioSettings
from services.audio.engine import Task
from services.audio.listener import ListenerSettings, TranscribeUtterance
from services.audio.recordings import RecordingDecoder
from services.audio.scheduler import TranscriptionScheduler
from services.audio.servicer import AudioServicer
from services.audio.speech import RATE, Audio, Partial, Segment, StreamEvent, Transcript, Word
from services.runtime.deadline import Deadline
from services.runtime.rpc.boundary import Call


class ScriptedRecognizer:
    """Transcribes one word for each second of audio: `w0`, `w1`, … A held one waits in the middle of its work."""

    name, device, compute_type, translates = "scripted", "cpu", "int8", True

    def __init__(self) -> None:
        self.steps = 0
        self.batches: list[int] = []  # how many windows could have been decoded in each step of a recording
        self.going = threading.Event()
        self.going.set()
        self.began = threading.Event()

    def transcribe_utterance(self, audio: Audio, language: str) -> Transcript:
        self._step()
        words = (Word(f"w{second}", float(second), second + 0.5) for second in range(round(len(audio) / RATE)))
        return Transcript(tuple(words), language or "de", 0.9)

    def transcribe(self, recording: Audio, task: Task, batch: Callable[[], int]) -> Iterator[Transcript]:
        said = task.prompt or ("english" if task.translate else "w")
        for second in range(round(len(recording) / RATE)):
            self._step()
            self.batches.append(batch())
            words = (Word(f"{said}{second}.", float(second), second + 0.5, 0.9),)
            yield Transcript(words, task.language or "de", speech_s=0.5)

    def _step(self) -> None:
        self.began.set()
        assert self.going.wait(10)
        self.steps += 1


class ScriptedListener:
    """Asks the model about each second, and says a partial and a segment for it."""

    def __init__(self, transcribe: TranscribeUtterance, settings: ListenerSettings):
        self._transcribe, self.settings = transcribe, settings
        self.audio_s = self.speech_s = self.busy_s = 0.0
        self._index = 0
        self._kept = 0

    async def listen(self, audio: AsyncIterator[Audio]) -> AsyncIterator[StreamEvent]:
        async for piece in audio:
            self.audio_s += len(piece) / RATE
            self._kept += len(piece)
            while self._kept >= RATE:
                self._kept -= RATE
                words = tuple(await self._transcribe(piece[:RATE], True))
                yield Partial(self._index, words, 0, self.audio_s)
                yield Segment(self._index, words, float(self._index), self._index + 0.5)
                self._index += 1


class Service:
    """The servicer with scripted parts."""

    def __init__(self, **settings: Any):
        self.settings = AudioSettings(model="scripted", **settings)
        self.recognizer, self.turns = ScriptedRecognizer(), TranscriptionScheduler()
        self.decoder = RecordingDecoder(RecordingLimits(self.settings.max_duration_s, self.settings.max_pcm_bytes))
        needs = {policy: Need(0.01, 1) for policy in ("windows", "local_agreement")}
        self.admission = Admission(self.turns, needs, self.settings.max_streams, self.settings.recordings, 0.85)
        self.listeners: list[ScriptedListener] = []
        self.servicer = AudioServicer(
            self.recognizer, ("en", "de"), self.turns, self.admission, self.decoder, self.settings, self._listening
        )

    def _listening(self, transcribe: TranscribeUtterance, settings: ListenerSettings) -> ScriptedListener:
        self.listeners.append(ScriptedListener(transcribe, settings))
        return self.listeners[-1]

    async def transcribe(
        self, requests: Iterable[audio_pb2.TranscribeRequest], seconds: float = 10, tenant: str = ""
    ) -> list[audio_pb2.TranscribeResponse]:
        return [reply async for reply in self.servicer.Transcribe(sent(requests), call(seconds, tenant))]

    async def close(self) -> None:
        self.recognizer.going.set()
        await self.turns.close()
        await self.decoder.close()


def call(seconds: float = 10, tenant: str = "", peer: str = "") -> Call:
    metadata = (("x-hedgerow-tenant", tenant),) if tenant else ()
    return Call(metadata, Deadline.after(seconds), trace.INVALID_SPAN, peer)


async def sent(requests: Iterable[Any], then: asyncio.Event | None = None) -> AsyncIterator[Any]:
    """A client's messages; it closes its side after `then`."""
    for request in requests:
        yield request
    if then:
        await then.wait()
