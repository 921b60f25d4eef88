"""How far a similarity alone would come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from bench.cache.labels import Judged


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
