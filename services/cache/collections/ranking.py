"""Several rankings made one: reciprocal rank fusion, which needs no scores that can be compared.

Source: Cormack, Clarke and Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning methods,
SIGIR 2009: https://doi.org/10.1145/1571941.1572114
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

_K = 60  # the paper's: how little the first places count above those that follow


def fused(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Each item of any ranking and its score, best first. 1 for one that is the first in all of them."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for place, item in enumerate(ranking, 1):
            scores[item] += (_K + 1) / (_K + place) / len(rankings)
    return sorted(scores.items(), key=lambda scored: -scored[1])
