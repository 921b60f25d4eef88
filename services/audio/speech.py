"""Events between the parts of the service. Times are seconds from the beginning of the audio.

Audio between the parts is always float32 in -1 to 1, mono, at `RATE`, as a NumPy array of shape (samples,).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # Hz
Audio: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Word:
    """A word, with its punctuation, without spaces. `probability` and `stability` are 0 to 1; 1 is confirmed. `joined`:
    no space stands before it in the text, as in Chinese."""

    text: str
    start_s: float
    end_s: float
    probability: float = 1.0
    stability: float = 1.0
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words that the model found in a piece of audio. `language`: ISO 639-1, the one asked for or the one detected;
    `certainty`: the probability of a detected one, 0 to 1. `speech_s`: how much speech a step of a recording found."""

    words: tuple[Word, ...] = ()
    language: str = ""
    certainty: float = 1.0
    speech_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """Speech began."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Partial:
    """The segment that is being spoken; the first `confirmed` words stay. `audio_s` had been heard for it."""

    index: int
    words: tuple[Word, ...]
    confirmed: int
    audio_s: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A closed segment: of a stream, what was said between two pauses; of a recording, a sentence or a part of one."""

    index: int
    words: tuple[Word, ...]
    start_s: float
    end_s: float
    language: str = ""


@dataclass(frozen=True, slots=True)
class Behind:
    """The model is this far behind what is spoken."""

    behind_s: float


StreamEvent: TypeAlias = Started | Partial | Segment | Behind


def written(words: Iterable[Word]) -> str:
    """The words with what stands before each: a space, or nothing."""
    return "".join(word.text if word.joined else f" {word.text}" for word in words)
