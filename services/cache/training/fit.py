"""Fits the score to labelled pairs, and certifies thresholds on pairs that it was not fitted to.

A threshold is the loosest for which the share of wrong hits, of all lookups, is within the limit with 95% confidence
(risk-controlling prediction sets: Bates et al., arXiv 2101.02703). It holds for traffic of which these pairs are a fair
sample, and for labels that are right.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from services.cache.engines import Engine
from services.cache.training.pairs import Pair, Parts
from services.cache.vectors import Vector
from services.cache.verdict import score
from services.cache.verdict.bounds import clopper_pearson
from services.cache.verdict.gates import DOUBTS
from services.cache.verdict.trained import Threshold, Trained
from services.cache.verdict.verdicts import ByScore
from services.cache.verdict.verifier import Verifier
from services.runtime.deadline import Deadline

FLOOR = 0.75  # least cosine of a pair that is scored
LIMITS = (0.002, 0.005, 0.01, 0.02, 0.05)  # shares of wrong hits for which thresholds are certified
_NO_HIT = -1.0
_STRENGTH = 0.03  # of the weights, as the inverse of what holds them small: the pairs that are left to fit are few
_READ = tuple(name for name in score.FEATURES if name not in DOUBTS)  # a verifier has seen what raises a doubt

Progress = Callable[[str], None]
Scored = tuple[float, bool]  # a score, and whether it is a duplicate


class TooFew(ValueError):
    """There are not enough pairs to fit or to certify anything."""


def fitted(parts: Parts, engine: Engine, verifier: Verifier | None, made_of: dict[str, Any], say: Progress) -> Trained:
    """A verdict with thresholds, for an embedder and what reads pairs beside it. Raises `TooFew`."""
    say(f"fit: {len(parts.fit)} pairs")
    weights, intercept = _weights(_features(parts.fit, engine, verifier), _READ if verifier else score.FEATURES)
    bare = Trained(
        embedder=engine.name, floor=FLOOR, weights=weights, intercept=intercept, thresholds=[], made_of=made_of
    )
    say(f"certify: {len(parts.certify)} pairs")
    scored = asyncio.run(_scored(parts.certify, engine, bare, verifier))
    return bare.model_copy(update={"thresholds": thresholds(scored)})


def thresholds(scored: Sequence[Scored]) -> list[Threshold]:
    """For each limit that can be certified, its loosest threshold."""
    duplicates = sum(duplicate for _, duplicate in scored) or 1
    allowed = {limit: most_wrong(limit, len(scored)) for limit in LIMITS}
    best: dict[float, Threshold] = {}
    wrong = found = 0
    for least, group in groupby(sorted(scored, reverse=True), key=lambda each: each[0]):
        labels = [duplicate for _, duplicate in group]
        found += sum(labels)
        wrong += len(labels) - sum(labels)
        if least == _NO_HIT or wrong > max(allowed.values()):
            break
        here = {"score": least, "lookups": len(scored), "wrong_hits": wrong, "found": found / duplicates}
        best |= {limit: Threshold(wrong=limit, **here) for limit in LIMITS if wrong <= allowed[limit]}
    return [best[limit] for limit in LIMITS if limit in best]


def most_wrong(limit: float, lookups: int) -> int:
    """The most wrong hits for which their share is within `limit` with 95% confidence; -1 where not even none is."""
    counts = range(int(limit * lookups) + 1)
    return bisect_right(counts, limit, key=lambda wrong: clopper_pearson(wrong, lookups)[1]) - 1


def _features(pairs: Sequence[Pair], engine: Engine, verifier: Verifier | None) -> list[tuple[dict[str, float], bool]]:
    """Of the pairs that would be scored."""
    near = [(pair, cosine) for pair, cosine in zip(pairs, _cosines(pairs, engine), strict=True) if cosine >= FLOOR]
    return [
        (score.features(pair.b, pair.a, "", cosine, _read(verifier, pair)), pair.duplicate) for pair, cosine in near
    ]


def _read(verifier: Verifier | None, pair: Pair) -> float:
    return (verifier.logit(pair.b, pair.a) or 0.0) if verifier else 0.0


def _weights(rows: Sequence[tuple[dict[str, float], bool]], used: Sequence[str]) -> tuple[dict[str, float], float]:
    """A logistic regression over the features that are used, its weights for features as they are."""
    labels = [duplicate for _, duplicate in rows]
    if min(labels.count(True), labels.count(False)) < len(score.FEATURES):
        least = len(score.FEATURES)
        raise TooFew(
            f"to fit: at least {least} near pairs of each kind, got {labels.count(True)} duplicates of {len(labels)}"
        )
    table = np.array([[known[name] for name in used] for known, _ in rows])
    scaler, model = StandardScaler(), LogisticRegression(C=_STRENGTH, max_iter=1_000)
    make_pipeline(scaler, model).fit(table, labels)
    slopes = model.coef_[0] / scaler.scale_
    intercept = float(model.intercept_[0] - slopes @ scaler.mean_)
    return dict.fromkeys(score.FEATURES, 0.0) | dict(zip(used, map(float, slopes), strict=True)), intercept


async def _scored(pairs: Sequence[Pair], engine: Engine, bare: Trained, verifier: Verifier | None) -> list[Scored]:
    """By the very code that serves: every `a` is stored, and its `b` is asked."""
    serving = ByScore(bare, verifier, 1.0, engine.unseen, timeout_s=60)
    try:
        judged = []
        for pair, cosine in zip(pairs, _cosines(pairs, engine), strict=True):
            each = await serving.judge(pair.b, pair.a, "", cosine, Deadline.never()) if cosine >= FLOOR else None
            judged.append((_NO_HIT if each is None or each.refused else each.score, pair.duplicate))
        return judged
    finally:
        serving.close()


def _cosines(pairs: Sequence[Pair], engine: Engine) -> list[float]:
    """Of each pair; 0 where a text is too long to embed."""
    texts = sorted({text for pair in pairs for text in (pair.a, pair.b)})
    vectors = dict(zip(texts, engine.embed_batch(texts), strict=True))
    return [_cosine(vectors[pair.a], vectors[pair.b]) for pair in pairs]


def _cosine(a: Vector | None, b: Vector | None) -> float:
    return 0.0 if a is None or b is None else float(a @ b)
