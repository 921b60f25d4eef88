"""Synthetic vectors that have neighbours: clusters around real embeddings of generated questions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np

from services.cache.engines import DIMENSION, Engine
from services.cache.ivf_index import Rows
from services.cache.vectors import Vector

QUESTIONS = 4_000  # of 9,600 that there are
AT_ONCE = 1_000
_SEED = 7
_ASKED = (
    "how do I {} {} {}", "what is the best way to {} {} {}", "why can't I {} {} {}", "how soon can I {} {} {}",
    "what does it cost to {} {} {}", "who can help me to {} {} {}", "is it safe to {} {} {}", "when should I {} {} {}",
)  # fmt: skip
_DONE = ("repair", "sell", "clean", "paint", "insure", "rent out", "move", "store", "photograph", "measure")
_THINGS = (
    "a bicycle", "a piano", "my garden", "an old computer", "a leather sofa", "the kitchen roof", "a fishing boat",
    "a stamp collection", "my grandmother's ring", "a wooden fence", "a greenhouse", "an electric car",
)  # fmt: skip
_WHEN = (
    "in winter", "before Friday", "without tools", "in a small flat", "for a friend", "abroad", "on a low budget",
    "after a flood", "with children around", "at night",
)  # fmt: skip


def questions() -> list[str]:
    """Different ones, the same each time."""
    every = [asked.format(*words) for asked, *words in product(_ASKED, _DONE, _THINGS, _WHEN)]
    return random.Random(_SEED).sample(every, QUESTIONS)


def centres(engine: Engine) -> Rows:
    """Their embeddings."""
    found = [vector for question in questions() for vector in engine.embed_batch([question]) if vector is not None]
    return np.stack(found)


def entries(around: Rows, count: int) -> Iterator[Rows]:
    """So many vectors, some at a time, the same each time: a cosine of 0.7 to 0.98 from one of the centres."""
    for number, start in enumerate(range(0, count, AT_ONCE)):
        numbers = np.random.default_rng((_SEED, number))
        chosen = around[numbers.integers(0, len(around), min(AT_ONCE, count - start))]
        yield beside(chosen, numbers, 0.7, 0.98)


def beside(rows: Rows, numbers: np.random.Generator, least: float, most: float) -> Rows:
    """For each row a vector whose cosine with it is between the two, in a direction drawn evenly."""
    cosines = numbers.uniform(least, most, (len(rows), 1)).astype(np.float32)
    off = numbers.standard_normal(rows.shape, np.float32)
    off -= (off * rows).sum(axis=1, keepdims=True) * rows
    off /= np.linalg.norm(off, axis=1, keepdims=True)
    return (cosines * rows + np.sqrt(1 - cosines**2) * off).astype(np.float32)


def nearest(around: Rows, count: int, asked: Rows, most: int, least: float) -> list[set[int]]:
    """For each vector asked the numbers of the `most` nearest entries, of those with a cosine of at least `least`."""
    best = np.full((len(asked), most), -1, np.float32)
    which = np.zeros((len(asked), most), np.int64)
    start = 0
    for rows in entries(around, count):
        similarities = np.concatenate([best, asked @ rows.T], axis=1)
        numbers = np.concatenate([which, np.tile(np.arange(start, start + len(rows)), (len(asked), 1))], axis=1)
        kept = np.argpartition(-similarities, most - 1, axis=1)[:, :most]
        best, which = np.take_along_axis(similarities, kept, 1), np.take_along_axis(numbers, kept, 1)
        start += len(rows)
    return [set(row[near >= least].tolist()) for row, near in zip(which, best, strict=True)]


def vector(row: Rows) -> Vector:
    """One that keeps no others alive."""
    found: Vector = row.reshape(DIMENSION).copy()
    return found
