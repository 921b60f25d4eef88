"""Words, and a recognizer that knows what was said: for what builds on the model, without the model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import soundfile
import soxr
from hypothesis import strategies as st

from services.audio.alignment import Span
from services.audio.speech import RATE, Audio, Word
from tests.models import SAMPLES

VOCABULARY = ("which", "city", "is", "the", "capital", "of", "a", "no", "semantic", "9", "fourteen.", "fox?")


@cache
def question() -> Audio:
    """A voice that asks for the capital of France, in two seconds."""
    samples, rate = soundfile.read(SAMPLES / "capital-of-france.wav", dtype="float32")
    return np.asarray(soxr.resample(samples, rate, RATE), np.float32)


def silence(seconds: float) -> Audio:
    return np.zeros(round(seconds * RATE), np.float32)


def said(*texts: str, from_s: float = 0.0, each_s: float = 0.4) -> list[Word]:
    """Words in a row, without a pause."""
    return [Word(text, from_s + at * each_s, from_s + (at + 1) * each_s) for at, text in enumerate(texts)]


def texts(words: Sequence[Word]) -> list[str]:
    return [word.text for word in words]


@st.composite
def speech(draw: st.DrawFn) -> list[Word]:
    """A speech: words of 0.15 to 0.8 s with short gaps, never the same word twice in a row."""
    words: list[Word] = []
    now = draw(st.floats(0, 2))
    for _ in range(draw(st.integers(1, 60))):
        text = draw(st.sampled_from([each for each in VOCABULARY if not words or each != words[-1].text]))
        length = draw(st.floats(0.15, 0.8))
        words.append(Word(text, now, now + length))
        now += length + draw(st.sampled_from((0.0, 0.02, 0.3)))
    return words


class Hearing:
    """Transcribes the words that lie in a span, with times that are off by up to `off_s`."""

    def __init__(self, spoken: Sequence[Word], off_s: float = 0.0, seed: int = 0):
        self.spoken, self.off_s = spoken, off_s
        self._random = random.Random(seed)

    def __call__(self, span: Span) -> list[Word]:
        inside = [word for word in self.spoken if word.start_s >= span.start_s and word.end_s <= span.stop_s]
        return [
            Word(word.text, max(span.start_s, word.start_s + self._off()), min(span.stop_s, word.end_s + self._off()))
            for word in inside
        ]

    def _off(self) -> float:
        return self._random.uniform(-self.off_s, self.off_s)
