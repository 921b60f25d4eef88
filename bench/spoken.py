"""Speech to listen to, with the truth about it: held-out sentences of the demo world, read aloud by eSpeak NG."""

from __future__ import annotations

import itertools
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
from numpy.typing import NDArray

RATE = 16_000  # Hz
TRAINING = Path(__file__).parents[1] / "training"
HELD_OUT = 990_077  # no training run used a seed like it
NOISE = 1e-3  # a quiet room, -60 dB: microphones know no digital silence
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class Said:
    """A word, and when it is over."""

    text: str
    end_s: float


@dataclass(frozen=True)
class Recording:
    """Sentences with pauses between them: float32, mono, at `RATE`."""

    samples: Samples
    words: tuple[Said, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


def recording(sentences: int, seed: int = 0, pauses_s: tuple[float, float] = (0.2, 1.2)) -> Recording:
    """So many sentences in a row, each in another voice. The same for the same arguments."""
    rng = random.Random(seed)
    parts: list[Samples] = []
    words: list[Said] = []
    now_s = 0.0
    for utterance in itertools.islice(_utterances(seed), sentences):
        pause = np.zeros(int(rng.uniform(*pauses_s) * RATE), np.float32)
        ends = [*utterance.starts[1:], utterance.end]
        words += (Said(text, now_s + end) for text, end in zip(utterance.words, ends, strict=True))
        parts += (utterance.audio.astype(np.float32) / 32_768, pause)
        now_s += (len(parts[-1]) + len(parts[-2])) / RATE
    samples = np.concatenate(parts)
    noise = np.random.default_rng(seed).normal(0, NOISE, len(samples)).astype(np.float32)
    return Recording(samples + noise, tuple(words))


def plain(text: str) -> list[str]:
    """Its words in lower case, without punctuation."""
    return re.sub(r"[^\w\s]", "", text.lower()).split()


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
    return "".join(plain(word)) or "-"  # alone it would be no word, and shift those after it


def _utterances(seed: int) -> Iterator[Any]:
    corpus, speaker = _training()
    rng = random.Random(seed)
    return (speaker.say(text, rng) for text in corpus.utterances(HELD_OUT + seed))


def read_aloud(text: str, voice: str, seed: int = 0) -> Samples:
    """A text in a voice of eSpeak's, for example `de`."""
    _, speaker = _training()
    samples: Samples = speaker.say(text, random.Random(seed), voice).audio.astype(np.float32) / 32_768
    return samples + np.random.default_rng(seed).normal(0, NOISE, len(samples)).astype(np.float32)


@cache
def _training() -> tuple[Any, Any]:
    """The corpus, and the one speaker that a process can have."""
    import espeakng_loader

    sys.path.append(str(TRAINING))  # the training scripts are no package
    try:
        corpus, speech = import_module("corpus"), import_module("speech_data")
    finally:
        sys.path.remove(str(TRAINING))
    library, data = espeakng_loader.get_library_path(), espeakng_loader.get_data_path()
    return corpus, speech.Speaker(str(library), str(data))
