"""A verdict made by hand: the score is the verifier's logit alone."""

from __future__ import annotations

from collections.abc import Mapping

from services.cache.verdict.score import FEATURES, VERIFIER
from services.cache.verdict.trained import Threshold, Trained


def made(thresholds: Mapping[float, float] | None = None, embedder: str = "bag of words") -> Trained:
    """Thresholds by the share of wrong hits that they hold."""
    certified = [
        Threshold(wrong=wrong, score=score, lookups=1_000, wrong_hits=0, found=0.5)
        for wrong, score in (thresholds or {0.01: 0.9}).items()
    ]
    weights = {name: float(name == VERIFIER) for name in FEATURES}
    return Trained(embedder=embedder, floor=0.75, weights=weights, intercept=0, thresholds=certified)
