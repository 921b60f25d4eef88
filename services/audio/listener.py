"""Listens to a stream: audio goes in as it comes, words come out as they are sure.

It reads on while the model works, which it asks for one thing at a time. A run takes all the audio there is, so that a
slow model makes steps longer and not later. As long as the model keeps up, what it is asked depends on the audio alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from services.audio.alignment import Span, shifted
from services.audio.confirmation import Agreement, Windows
from services.audio.endpointer import Endpointer, Utterance
from services.audio.speech import RATE, Audio, Behind, Partial, Segment, StreamEvent, Transcript, Word

# Audio of at most 30 s, and whether the speaker has paused → its words.
TranscribeUtterance = Callable[[Audio, bool], Awaitable[Sequence[Word]]]
_MOST_BUSY = 0.45  # the share of the time in which a stream may want the model: two fit, and are on time
_BEHIND_EVERY_S = 1.0
_SURE, _SURE_AFTER_S = 0.5, 3.0  # probability, and speech in seconds: less of it is often mistaken
_LIKELY, _LIKELY_AFTER_S = 0.8, 2.0  # either is enough for words to be shown


@dataclass(frozen=True)
class ListenerSettings:
    """How to listen."""

    policy: Literal["local_agreement", "windows"] = "local_agreement"
    pause_ms: int = 500  # the silence that closes a segment
    step_ms: int = 300  # between two runs of local agreement
    trim_s: float = 7.0  # local agreement cuts longer utterances
    window_s: float = 5.0
    overlap_s: float = 0.5
    longest_s: float = 30.0  # a segment that grows longer is closed where it is confirmed
    behind_s: float = 1.0  # from here on the listener says that it is behind
    backlog_s: float = 30.0  # audio that is kept; reading waits when there is more


class Listener:
    """One stream. `busy_s`: how long its runs took, with their wait for the model."""

    def __init__(
        self, transcribe: TranscribeUtterance, settings: ListenerSettings, clock: Callable[[], float] = time.monotonic
    ):
        self.busy_s = 0.0
        self._transcribe, self._settings, self._clock = transcribe, settings, clock
        self._endpointer = Endpointer(settings.pause_ms / 1000)
        self._events: deque[StreamEvent] = deque()
        self._changed, self._room = asyncio.Event(), asyncio.Event()
        self._words: Agreement | Windows | None = None  # of the first utterance that is not transcribed
        self._shown: tuple[Word, ...] = ()
        self._index = 0
        self._run: asyncio.Task[list[Word]] | None = None
        self._span = Span(0.0, 0.0)  # of the run
        self._took_s = 0.0  # the last run
        self._said_behind = float("-inf")

    @property
    def audio_s(self) -> float:
        """The audio that has come."""
        return self._endpointer.now / RATE

    @property
    def speech_s(self) -> float:
        """How much of it was speech."""
        return self._endpointer.spoken / RATE

    @property
    def _full(self) -> bool:
        """Whether so much audio is kept that reading waits."""
        return self._endpointer.kept_s > self._settings.backlog_s

    async def listen(self, audio: AsyncIterator[Audio]) -> AsyncIterator[StreamEvent]:
        """The events of the stream, until all of the audio is transcribed. Raises the errors of audio and model."""
        reading = asyncio.create_task(self._read(audio))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            while not reading.done() or self._endpointer.utterances:
                self._advance()
                while self._events:
                    yield self._events.popleft()
                if not reading.done() or self._run:
                    await self._changed.wait()
                    self._changed.clear()
                if reading.done():
                    reading.result()
        finally:
            await _stop(reading, self._run)

    async def _read(self, audio: AsyncIterator[Audio]) -> None:
        async for packet in audio:
            self._events += self._endpointer.feed(packet)
            self._changed.set()
            while self._full:
                self._room.clear()
                await self._room.wait()
                if not self._run:
                    break  # the model has had all there is, and needs more to be sure of it
        self._endpointer.end()

    def _advance(self) -> None:
        """Take what the model has found, and ask it for what is due."""
        if self._run and self._run.done():
            run, self._run = self._run, None
            self._take(run.result())
        while not self._run and self._endpointer.utterances and self._go_on(self._endpointer.utterances[0]):
            pass
        self._forget()
        self._say_behind()

    def _go_on(self, utterance: Utterance) -> bool:
        """Transcribe more of an utterance, if it is time. True when it is over, and the next one has its turn."""
        self._words = words = self._words or self._new_words(utterance.start / RATE)
        step_s = max(self._settings.step_ms / 1000, self._took_s / _MOST_BUSY)
        hurry = utterance.quiet or self._full  # no more comes before this is transcribed
        if span := words.next(utterance.upto / RATE, hurry, step_s):
            self._span = span
            self._run = asyncio.create_task(self._timed(span, utterance.quiet))
            self._run.add_done_callback(lambda _: self._changed.set())
            return False
        if utterance.closed:
            words.finish()
            self._close(words)
            self._words = None
            self._endpointer.utterances.popleft()
        return utterance.closed

    async def _timed(self, span: Span, paused: bool) -> list[Word]:
        began = self._clock()
        audio = self._endpointer.audio(round(span.start_s * RATE), round(span.stop_s * RATE))
        words = await self._transcribe(audio, paused)
        self._took_s = self._clock() - began
        self.busy_s += self._took_s
        return [shifted(word, span.start_s) for word in words]

    def _take(self, run: list[Word]) -> None:
        words, utterance = self._words, self._endpointer.utterances[0]
        if words is None:
            return
        words.take(run, self._span)
        if utterance.closed and self._span.stop_s * RATE >= utterance.upto:
            return  # the segment follows at once
        confirmed, shown = words.confirmed, words.confirmed + words.pending
        if confirmed and confirmed[-1].end_s - confirmed[0].start_s > self._settings.longest_s:
            self._close(words)
        elif shown != self._shown:
            self._shown = shown
            self._events.append(Partial(self._index, shown, len(confirmed), self._span.stop_s))

    def _close(self, words: Agreement | Windows) -> None:
        """End a segment with its confirmed words. If it has none, an empty partial takes back the shown words."""
        if said := words.release():
            self._events.append(Segment(self._index, said, said[0].start_s, said[-1].end_s))
            self._index += 1
        elif self._shown:
            self._events.append(Partial(self._index, (), 0, self._span.stop_s))
        self._shown = ()

    def _new_words(self, start_s: float) -> Agreement | Windows:
        if self._settings.policy == "windows":
            return Windows(start_s, self._settings.window_s, self._settings.overlap_s)
        return Agreement(start_s, self._settings.trim_s)

    def _forget(self) -> None:
        first = self._endpointer.utterances[0].start if self._endpointer.utterances else self._endpointer.now
        self._endpointer.forget(max(first, round(self._words.start_s * RATE)) if self._words else first)
        self._room.set()

    def _say_behind(self) -> None:
        behind_s = self.audio_s - self._span.stop_s if self._run else 0.0
        now = self._clock()
        if behind_s > self._settings.behind_s and now - self._said_behind >= _BEHIND_EVERY_S:
            self._said_behind = now
            self._events.append(Behind(behind_s))


async def _stop(*tasks: asyncio.Task[None] | asyncio.Task[list[Word]] | None) -> None:
    """Cancel the tasks, and wait until they have ended."""
    running = [task for task in tasks if task and not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


class StreamLanguage:
    """The language of a stream: the one asked for, or the one that the model detects as it hears more. `code` is the
    language so far, empty before anything was heard. `settled`: words may be shown. Until then they would often be
    another language's, and confirmed words stay."""

    def __init__(self, asked: str):
        self.code = asked
        self.settled = self._sure = bool(asked)

    @property
    def wanted(self) -> str:
        """The language to transcribe the next audio in; empty: detect it."""
        return self.code if self._sure else ""

    def observe(self, found: Transcript, audio_s: float) -> None:
        """The model has transcribed so much audio."""
        if self._sure or not found.language:
            return
        self.code = found.language
        self.settled |= found.certainty >= _LIKELY or audio_s >= _LIKELY_AFTER_S
        self._sure = found.certainty >= _SURE and audio_s >= _SURE_AFTER_S
