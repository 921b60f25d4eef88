"""A recording, from the bytes that come in to the words that go out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.audio.decode import Decoding, Limits, Recording
from services.audio.engine import Recognizer
from services.audio.errors import Idle
from services.audio.scheduler import Member, Scheduler
from services.audio.speech import RATE, Segment
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, TooLate

T = TypeVar("T")
_SPEECH_BLOCK = 30 * RATE  # how much is asked at a time for speech, in samples
_SEGMENT_COST_S, _SPEECH_COST_S = 1.0, 0.1  # against each other


async def gathered(pieces: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """A file that comes in pieces. Raises InvalidInput with the first byte that is too many."""
    kept: list[bytes] = []
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise InvalidInput("data", f"at most {max_bytes} bytes", f"{size} bytes or more")
        kept.append(piece)
    return b"".join(kept)


class Decoder:
    """Decodes files on a thread of its own, a second of audio at a time: files take turns, and one whose caller has
    gone is decoded no further."""

    def __init__(self, limits: Limits):
        self._limits = limits
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="decoder")

    async def decode(self, data: bytes) -> Recording:
        """Raises InvalidInput for what is no recording or is too long."""
        decoding = await self._run(lambda: Decoding(data, self._limits))
        while await self._run(decoding.step):
            pass
        return await self._run(decoding.recording)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """Wait for what runs, and end the thread."""
        await asyncio.to_thread(self._thread.shutdown)


class Transcription:
    """One recording's way through the model, segment by segment between what others want of it."""

    def __init__(self, recognizer: Recognizer, scheduler: Scheduler, member: Member, recording: Recording):
        self._recognizer, self._scheduler, self._member = recognizer, scheduler, member
        self._audio = recording.audio

    async def segments(self, language: str, deadline: Deadline) -> AsyncGenerator[Segment, None]:
        """Each segment when it is done. Raises TooLate at the deadline."""
        steps = self._recognizer.transcribe(self._audio, language)
        index = 0
        while (words := await self._turn(lambda: next(steps, None), _SEGMENT_COST_S, deadline)) is not None:
            if words:
                yield Segment(index, tuple(words), words[0].start_s, words[-1].end_s)
                index += 1

    async def speech_s(self, deadline: Deadline) -> float:
        """How much of the recording is speech, in seconds."""
        total = 0.0
        for start in range(0, len(self._audio), _SPEECH_BLOCK):
            block = self._audio[start : start + _SPEECH_BLOCK]
            total += await self._turn(lambda block=block: self._recognizer.speech_s(block), _SPEECH_COST_S, deadline)  # type: ignore[misc]
        return total

    async def _turn(self, work: Callable[[], T], cost_s: float, deadline: Deadline) -> T:
        return await in_time(self._scheduler.run(self._member, work, cost_s), deadline)


async def in_time(work: Awaitable[T], deadline: Deadline) -> T:
    """The result of `work`. Raises TooLate when the deadline passes first; `work` is cancelled."""
    remaining_s = deadline.remaining()
    try:
        async with asyncio.timeout(remaining_s if remaining_s < float("inf") else None):
            return await work
    except TimeoutError:
        raise TooLate("the call's time was over before the recording was transcribed") from None


async def not_idle(requests: AsyncIterator[T], idle_timeout_s: float) -> T | None:
    """The client's next message; None when it is done. Raises Idle."""
    try:
        async with asyncio.timeout(idle_timeout_s):
            return await anext(requests, None)
    except TimeoutError:
        raise Idle(f"a message at least every {idle_timeout_s:g} s, got none", limit=f"{idle_timeout_s:g} s") from None
