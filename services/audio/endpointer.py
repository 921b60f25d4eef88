"""The audio of a stream so far, and the utterances in it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from services.audio.speech import RATE, Audio, Started
from services.audio.vad import PauseDetector, Probabilities

AROUND = RATE // 5  # samples kept before and after what is said


@dataclass(slots=True)
class Utterance:
    """Speech between two pauses. In samples."""

    start: int
    spoke_at: int  # where speech was heard last
    upto: int  # where it ends for the model, as far as is known
    quiet: bool = False  # no speech for a moment
    closed: bool = False  # no speech for the length of a pause


class Endpointer:
    """Takes audio as it comes, and keeps what is still needed."""

    def __init__(self, pause_s: float):
        self.utterances: deque[Utterance] = deque()  # those that are not transcribed yet; the last one may be open
        self.now = 0  # samples that have come
        self.spoken = 0  # samples of speech in closed utterances
        self._kept: Audio = np.empty(0, np.float32)
        self._probabilities, self._pauses = Probabilities(), PauseDetector(pause_s)
        self._last = 0  # where the last utterance ended

    @property
    def kept_s(self) -> float:
        """How much audio is kept."""
        return len(self._kept) / RATE

    def feed(self, audio: Audio) -> list[Started]:
        """Listen to the next samples."""
        self._kept = np.concatenate((self._kept, audio))
        self.now += len(audio)
        started = []
        for probability in self._probabilities.feed(audio).tolist():
            turn = self._pauses.push(probability)
            if turn and turn.speaking:
                start = max(self._last, turn.at - AROUND)
                self.utterances.append(Utterance(start, turn.at, turn.at))
                started.append(Started(turn.at / RATE))
            elif turn:
                self._close()
            elif self._pauses.speaking:
                self._go_on(self.utterances[-1])
        return started

    def end(self) -> None:
        """End the input."""
        if self._pauses.speaking:
            self._pauses.speaking = False
            self.utterances[-1].upto = self.now
            self._close()

    def audio(self, start: int, stop: int) -> Audio:
        """The audio between two samples."""
        first = self.now - len(self._kept)
        return self._kept[max(0, start - first) : stop - first]

    def forget(self, before: int) -> None:
        """Audio before a sample is not needed; the part that an utterance would need that begins now is kept."""
        before = min(before, self.now - 4 * AROUND)
        first = self.now - len(self._kept)
        if before > first:
            self._kept = self._kept[before - first :]

    def _go_on(self, utterance: Utterance) -> None:
        utterance.spoke_at = self._pauses.spoke_at
        utterance.upto = min(self._pauses.now, utterance.spoke_at + AROUND)
        utterance.quiet = self._pauses.now >= utterance.spoke_at + AROUND

    def _close(self) -> None:
        utterance = self.utterances[-1]
        utterance.quiet = utterance.closed = True
        self._last = utterance.upto
        self.spoken += utterance.spoke_at - utterance.start
