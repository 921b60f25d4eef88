"""A recording → windows for the model: the speech in it, up to 30 s at a time, without the silence between.

Packs as faster-whisper's `BatchedInferencePipeline` does (`vad.get_speech_timestamps`, `vad.collect_chunks`), but goes
through the recording in blocks, so that each step is bounded work and the first window is ready early.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from services.audio.speech import RATE, Audio
from services.audio.vad import FRAME, PauseDetector, Probabilities

BLOCK = 30 * RATE  # samples looked at in one step: about 40 ms of work
AROUND = RATE * 2 // 5  # samples kept before and after speech
_PAUSE_S = 0.16  # the shortest silence at which a window may end
_SPEECH = 0.5


@dataclass(frozen=True, slots=True)
class Stretch:
    """Speech between two silences, from and to, in samples."""

    start: int
    stop: int


@dataclass(frozen=True)
class PackedWindow:
    """Stretches that the model hears as one, at least one."""

    stretches: tuple[Stretch, ...]

    def audio(self, recording: Audio) -> Audio:
        """The samples of the window."""
        return np.concatenate([recording[each.start : each.stop] for each in self.stretches])

    def recorded_s(self, start_s: float, end_s: float) -> tuple[float, float]:
        """When in the recording something was said that the model heard at these times of the window. Its middle
        decides in which stretch it lies: no word goes on over a silence that was left out."""
        middle = (start_s + end_s) / 2 * RATE
        at = min(bisect_left(self._ends, middle), len(self.stretches) - 1)
        stretch = self.stretches[at]
        left_out = stretch.start - (self._ends[at] - (stretch.stop - stretch.start))
        first, last = stretch.start / RATE, stretch.stop / RATE
        return _within(start_s + left_out / RATE, first, last), _within(end_s + left_out / RATE, first, last)

    @cached_property
    def _ends(self) -> list[int]:
        """The end of each stretch in the window, in samples."""
        return list(accumulate(each.stop - each.start for each in self.stretches))


class Speech:
    """Finds the stretches of a recording, block by block. `spoken`: samples of speech so far."""

    def __init__(self, longest_s: float):
        self.spoken = 0
        self._longest = round(longest_s * RATE)
        self._probabilities, self._pauses = Probabilities(), PauseDetector(_PAUSE_S)
        self._start: int | None = None  # of the stretch that is open
        self._frame_probabilities: list[float] = []  # the probabilities of its frames

    def feed(self, block: Audio) -> list[Stretch]:
        """The stretches that end in the next block."""
        probabilities = self._probabilities.feed(block)
        self.spoken += int((probabilities >= _SPEECH).sum()) * FRAME
        return [ended for each in probabilities.tolist() if (ended := self._push(each))]

    def end(self, length: int) -> list[Stretch]:
        """The stretch that the end of the recording ends, if one is open."""
        return [] if self._start is None else [Stretch(self._start, length)]

    def _push(self, probability: float) -> Stretch | None:
        turn = self._pauses.push(probability)
        if turn and turn.speaking:
            self._start, self._frame_probabilities = turn.at, [1.0] * ((self._pauses.now - turn.at) // FRAME)
            return None
        if self._start is None:
            return None
        self._frame_probabilities.append(probability)
        if turn:
            ended, self._start = Stretch(self._start, turn.at), None
            return ended
        return self._cut(self._start) if self._pauses.now - self._start > self._longest else None

    def _cut(self, start: int) -> Stretch:
        """Speech without a pause is cut at the frame least like speech in its second half."""
        half = len(self._frame_probabilities) // 2
        frames = half + int(np.argmin(self._frame_probabilities[half:]))
        self._start, self._frame_probabilities = start + frames * FRAME, self._frame_probabilities[frames:]
        return Stretch(start, self._start)


def speech_for(longest_s: float) -> Speech:
    """Finds stretches that fit a window of `longest_s`, with the silence kept around them."""
    return Speech(longest_s - 2 * AROUND / RATE)


def windows(recording: Audio, longest_s: float, speech: Speech) -> Iterator[PackedWindow | None]:
    """The windows of a recording, each of at most `longest_s`. None: a block was looked at, and no window is full."""
    packed: list[Stretch] = []
    length, longest = 0, round(longest_s * RATE)
    for stretch in _padded(_stretches(recording, speech), len(recording)):
        if stretch is None:
            yield None
            continue
        if packed and length + stretch.stop - stretch.start > longest:
            yield PackedWindow(tuple(packed))
            packed, length = [], 0
        packed.append(stretch)
        length += stretch.stop - stretch.start
    if packed:
        yield PackedWindow(tuple(packed))


def _stretches(recording: Audio, speech: Speech) -> Iterator[Stretch | None]:
    """The stretches; None after each block."""
    for start in range(0, len(recording), BLOCK):
        yield from speech.feed(recording[start : start + BLOCK])
        yield None
    yield from speech.end(len(recording))


def _padded(stretches: Iterable[Stretch | None], length: int) -> Iterator[Stretch | None]:
    """The stretches with the silence around them: all of a short one, half to each side; the edges of a long one."""
    held: Stretch | None = None
    for stretch in stretches:
        if stretch is None:
            yield None
            continue
        if held is None:
            held = Stretch(max(0, stretch.start - AROUND), stretch.stop)
            continue
        silence = stretch.start - held.stop
        around = silence // 2 if silence < 2 * AROUND else AROUND
        yield Stretch(held.start, held.stop + around)
        held = Stretch(stretch.start - around, stretch.stop)
    if held:
        yield Stretch(held.start, min(length, held.stop + AROUND))


def _within(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
