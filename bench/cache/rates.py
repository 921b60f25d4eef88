"""How sure a share is, and how far a similarity alone would come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, lgamma, log, log1p

from bench.cache.labels import Judged


def interval(count: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Two-sided limits of a share. Source: Clopper, Pearson, The use of confidence or fiducial limits illustrated in
    the case of the binomial, Biometrika 26 (1934)."""
    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else _where(lambda share: 1 - _at_most(count - 1, of, share), tail)
    high = 1.0 if count == of else _where(lambda share: 1 - _at_most(count, of, share), 1 - tail)
    return low, high


def _where(rising: Callable[[float], float], value: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return low


def _at_most(count: int, of: int, share: float) -> float:
    """The probability of at most `count` successes."""
    if share in (0.0, 1.0):
        return float(share == 0.0 or count >= of)
    rest = [
        lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) + k * log(share) + (of - k) * log1p(-share)
        for k in range(count + 1)
    ]
    return min(1.0, sum(map(exp, rest)))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest question to one that was asked. `duplicate`: it has one to be found."""

    similarity: float
    judged: Judged
    duplicate: bool


def calibrated(nearest: Sequence[Nearest], wrong_share: float) -> dict[str, float]:
    """What the loosest threshold finds whose wrong hits are no more than `wrong_share` of all lookups. It is chosen on
    the very pairs it is measured on, so no threshold chosen beforehand does better."""
    best = {"threshold": 1.0, "found": 0.0, "wrong_of_lookups": 0.0}
    duplicates = max(1, sum(each.duplicate for each in nearest))
    found = wrong = 0
    ordered = sorted(nearest, key=lambda each: -each.similarity)
    for similarity, equal in groupby(ordered, key=lambda each: each.similarity):
        for each in equal:
            wrong += each.judged is Judged.WRONG
            found += each.duplicate and each.judged is Judged.RIGHT
        if wrong > wrong_share * len(nearest):
            break
        shares = {"found": found / duplicates, "wrong_of_lookups": wrong / len(nearest)}
        best = {name: round(value, 4) for name, value in {"threshold": similarity, **shares}.items()}
    return best
