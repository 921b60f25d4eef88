"""Speech to listen to, with the truth about it: held-out sentences of the demo world, read aloud by eSpeak NG."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench.speech import NOISE, RATE, Recording, Said, Samples

TRAINING = Path(__file__).parents[1] / "training"
HELD_OUT = 990_077  # no training run used a seed like it


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
