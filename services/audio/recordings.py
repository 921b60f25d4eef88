"""The transcription of a recording, from its bytes to its segments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from services.audio.audio_decoding import DecodedRecording, Decoding, RecordingLimits
from services.audio.engine import Recognizer, Task
from services.audio.errors import Idle
from services.audio.scheduler import FairMember, TranscriptionScheduler
from services.audio.sentences import TranscriptSentences
from services.audio.speech import Segment
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, TooLate

T = TypeVar("T")
_ENGLISH = "en"
_PIECE_COST_S = 1.0  # the same for all: recordings take turns


async def gathered(pieces: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """A file from its pieces. Raises InvalidInput once there are more than `max_bytes`."""
    kept: list[bytes] = []
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise InvalidInput("data", f"at most {max_bytes} bytes", f"{size} bytes or more")
        kept.append(piece)
    return b"".join(kept)


class RecordingDecoder:
    """Decodes files on a thread of its own, one second of audio at a time: files take turns, and decoding stops when
    the caller leaves."""

    def __init__(self, limits: RecordingLimits):
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    async def decode(self, data: bytes) -> DecodedRecording:
        """Decode a file. Raises InvalidInput for data that is no recording or is too long."""
        decoding = await self._run(lambda: Decoding(data, self._limits))
        while await self._run(decoding.step):
            pass
        return await self._run(decoding.recording)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Wait for the running step, and end the thread."""
        await asyncio.to_thread(self._thread.shutdown)


@dataclass(frozen=True, slots=True)
class RecordingTimeLimit:
    """The time limit of a recording: its call's deadline, and at most `base_s` plus `per_s` for each second of
    audio."""

    base_s: float
    per_s: float

    def until(self, deadline: Deadline, duration_s: float) -> tuple[Deadline, str]:
        """The deadline for a recording that begins now, and its name in errors."""
        limit_s = self.base_s + self.per_s * duration_s
        if deadline.remaining() <= limit_s:
            return deadline, "the call's deadline"
        what = f"{limit_s:.0f} s ({self.base_s:g} s + {self.per_s:g} × {duration_s:.0f} s of audio)"
        return Deadline.after(limit_s, deadline.clock), f"the time limit of {what}, setting recording_time_factor,"


class Transcription:
    """Transcribes one recording, in pieces of work between those of other callers.

    `language`, `speech_s`: known so far. `batch` returns how many windows may be decoded in one piece.
    """

    def __init__(
        self,
        recognizer: Recognizer,
        scheduler: TranscriptionScheduler,
        member: FairMember,
        recording: DecodedRecording,
        batch: Callable[[], int] = lambda: 1,
    ):
        self._recognizer, self._scheduler, self._member = recognizer, scheduler, member
        self._audio, self._batch = recording.audio, batch
        self.language, self.speech_s = "", 0.0

    async def segments(
        self, task: Task, deadline: Deadline, limit: str = "the call's deadline"
    ) -> AsyncGenerator[Segment, None]:
        """Each segment when it is done. Raises TooLate at the deadline, with its name `limit`."""
        steps = self._recognizer.transcribe(self._audio, task, self._batch)
        self.language = task.language
        sentences = TranscriptSentences(_ENGLISH if task.translate else task.language)
        while (found := await in_time(self._turn(lambda: next(steps, None)), deadline, limit)) is not None:
            self.speech_s += found.speech_s
            self.language = found.language or self.language
            sentences.language = _ENGLISH if task.translate else self.language
            for segment in sentences.push(found.words):
                yield segment
        for segment in sentences.end():
            yield segment

    async def _turn(self, work: Callable[[], T]) -> T:
        return await self._scheduler.run(self._member, work, _PIECE_COST_S)


async def in_time(work: Awaitable[T], deadline: Deadline, what: str = "the call's deadline") -> T:
    """The result of `work`. Raises TooLate when the deadline passes first; `work` is cancelled."""
    remaining_s = deadline.remaining()
    try:
        async with asyncio.timeout(remaining_s if remaining_s < float("inf") else None):
            return await work
    except TimeoutError:
        raise TooLate(f"{what} passed before the recording was transcribed") from None


async def not_idle(
    requests: AsyncIterator[T], idle_timeout_s: float, counts: Callable[[T], object] = lambda _: True
) -> T | None:
    """The client's next message that `counts`; None when it is done. Raises Idle."""
    try:
        async with asyncio.timeout(idle_timeout_s):
            async for request in requests:
                if counts(request):
                    return request
            return None
    except TimeoutError:
        raise Idle(f"a message at least every {idle_timeout_s:g} s, got none", limit=f"{idle_timeout_s:g} s") from None
