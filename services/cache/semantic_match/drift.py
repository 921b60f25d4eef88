"""Whether what is verified of late is like what was verified before: what every bound on it assumes.

The newer half of the samples beside the older one, in two ways. How their scores lie, by the largest distance between
the two distributions (Kolmogorov and Smirnov's test for two samples, in the large-sample form; ties only make it say
less). And how many of those in the gray zone are wrong, near the threshold in force, where a change decides: Fisher's
exact test, because one half may have 20 of them and the other 180, where a normal approximation said so by chance once
in 500 looks. Each test says so by chance once in 20,000 looks at the most.

Sources: Hodges, The significance probability of the Smirnov two-sample test, Arkiv för Matematik 3, 1958; Fisher,
Statistical Methods for Research Workers, § 21.02.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

LEAST = 200  # samples, half of them newer; fewer say nothing
GRAY = 0.05  # of score to either side of the threshold
_BY_CHANCE = 1 / 20_000
_FAR = math.sqrt(-math.log(_BY_CHANCE / 2) / 2)  # times sqrt(1/n + 1/m): 2.30
_LEAST_GRAY = 20  # samples in the gray zone of each half

SCORES, WRONG = "scores", "wrong share near the threshold"


def drifted(scores: NDArray[np.float64], wrong: NDArray[np.bool_], threshold: float) -> str:
    """The kind of drift, for people: `SCORES`, `WRONG`, or an empty text. Arrays of shape (n,), the oldest sample
    first."""
    middle = len(scores) // 2
    if len(scores) < LEAST:
        return ""
    if _distance(scores[:middle], scores[middle:]) > _FAR * math.sqrt(1 / middle + 1 / (len(scores) - middle)):
        return SCORES
    gray = np.abs(scores - threshold) <= GRAY
    older, newer = wrong[:middle][gray[:middle]], wrong[middle:][gray[middle:]]
    return WRONG if _differ(older, newer) else ""


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The largest between the shares that are at most so much, 0 to 1."""
    values = np.concatenate([one, other])
    below = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def _differ(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> bool:
    """Whether as many wrong ones, dealt out by chance, fall so unevenly in less than _BY_CHANCE, half of it to each
    side."""
    if min(len(one), len(other)) < _LEAST_GRAY:
        return False
    here, wrong = int(one.sum()), int(one.sum() + other.sum())
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, len(one) + len(other) + 1)))])  # of factorials

    def ways(of: int, taken: NDArray[np.int64]) -> NDArray[np.float64]:
        """The logarithm of how many."""
        return np.asarray(logs[of] - logs[taken] - logs[of - taken])

    could = np.arange(max(0, wrong - len(other)), min(wrong, len(one)) + 1)
    all_ways = ways(len(one) + len(other), np.array(wrong))
    chances = np.exp(ways(len(one), could) + ways(len(other), wrong - could) - all_ways)
    tail = min(chances[could <= here].sum(), chances[could >= here].sum())
    return bool(tail <= _BY_CHANCE / 2)
