"""How sure it is that two questions ask the same: a logistic regression over what is known of the pair."""

from __future__ import annotations

import math
from collections.abc import Mapping

from services.cache.verdict import facts, gates

COSINE, VERIFIER, OVERLAP, FEWER, MORE, LENGTH = "cosine", "verifier", "overlap", "fewer", "more", "length"
FEATURES = (COSINE, VERIFIER, OVERLAP, FEWER, MORE, LENGTH, *gates.DOUBTS)
_SHARPEST = 0.9999  # a cosine of 1 would be infinitely sure


def features(asked: str, stored: str, tenant: str, similarity: float, verified: float) -> dict[str, float]:
    """Of a tenant's pair of questions. `similarity`: their cosine; `verified`: what a verifier says, as a logit.

    `fewer`, `more`: words that carry meaning and are in one alone, of the one that has fewer of them and of the other;
    `length`: how many such words the longer one has, as a logarithm.
    """
    a, b = set(facts.read(asked, tenant).content), set(facts.read(stored, tenant).content)
    raised = gates.doubts(asked, stored, tenant, similarity)
    return {
        COSINE: math.atanh(min(similarity, _SHARPEST)),
        VERIFIER: verified,
        OVERLAP: len(a & b) / max(1, len(a | b)),
        FEWER: min(len(a - b), len(b - a)),
        MORE: max(len(a - b), len(b - a)),
        LENGTH: math.log1p(max(len(a), len(b))),
        **{doubt: float(doubt in raised) for doubt in gates.DOUBTS},
    }


def score(weights: Mapping[str, float], intercept: float, known: Mapping[str, float]) -> float:
    """The share of such pairs that ask the same, 0 to 1, as far as those that the weights were made of are like it."""
    total = intercept + math.fsum(weights[name] * value for name, value in known.items())
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, total))))
