"""How right semantic hits are, on labelled pairs: what the cache's own `lookup` answers, and cosine alone beside it.

Of each pair `a` is stored and `b` is looked up, with no other question to compare it with. With verdicts a part of the
pairs is traffic that is judged by its labels, and the rest is measured before and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from bench.cache import pairs, parts
from bench.cache.pairs import Pair, divided
from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.engines import DIMENSION, Engine
from services.cache.keyed_question import KeyedQuestion, keyed
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline

_AT_ONCE = 64  # stores
_TTL_MS = 24 * 60 * 60 * 1000
_ORACLE = 0.01  # wrong hits of all lookups
_TENANT = "bench"
_SEED = 0
Progress = Callable[[str], None]


async def measure(path: Path, progress: Progress, verdicts: int = 0) -> dict[str, object]:
    """The shares of hits and of wrong hits, by cosine alone and with the rules. With `verdicts`: on the pairs that are
    held out, before and after at most so many verdicts on the other pairs. Raises `BadPairs`. Takes two minutes for
    20,000 pairs."""
    given = pairs.read(path)
    share = 1.0 if verdicts else 0.0
    settings = CacheSettings(database="", max_entries=max(len(given), CacheSettings().entries), verify_share=share)
    engine = await asyncio.to_thread(parts.load, settings)
    traffic, measured = divided(given, _SEED) if verdicts else ([], given)
    lookups = Lookups(measured, progress, traffic, verdicts)
    return {
        "file": str(path),
        "embedder": engine.name,
        "default_threshold": settings.similarity_threshold,
        "lookups": len(measured),
        "duplicates": sum(pair.duplicate for pair in measured),
        **await lookups.measure(settings, engine),
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pair in a partition of its own."""

    stored: KeyedQuestion
    asked: KeyedQuestion
    duplicate: bool


class Lookups:
    """Each pair in a partition of its own. `traffic` is looked up before what is measured, until there are so many
    `verdicts`."""

    def __init__(self, given: Sequence[Pair], progress: Progress, traffic: Sequence[Pair] = (), verdicts: int = 0):
        self._progress, self._verdicts = progress, verdicts
        every = [
            _Asked(_keyed(pair.a, number), _keyed(pair.b, number), pair.duplicate)
            for number, pair in enumerate([*given, *traffic])
        ]
        self._measured, self._traffic = every[: len(given)], every[len(given) :]

    async def measure(self, settings: CacheSettings, engine: Engine) -> dict[str, object]:
        """Store, look up, judge the traffic and look up again, as far as there is any."""
        embedder, memory = parts.RememberingEmbedder(engine, settings), parts.make_memory(settings)
        learnt: dict[str, object] = {}
        async with parts.running(settings, engine, embedder, memory) as (answers, _):
            await self._store(answers)
            hits = await self._look_up(answers)
            if self._traffic:
                learnt["before"] = self._summary(hits)
                learnt |= await self._judge(answers)
                hits = await self._look_up(answers)
        summary, wrong = self._summary(hits), sum(hits) - self._right(hits)
        nearest = self._nearest(embedder.vectors)
        oracles = {"at_1_percent_wrong": _ORACLE, "at_the_same_error": wrong / len(hits)}
        cosine = {name: calibrated(nearest, share) for name, share in oracles.items()}
        return {**summary, **learnt, "cosine_alone_oracle": cosine}

    async def _store(self, answers: Answers) -> None:
        every = [each.stored for each in (*self._measured, *self._traffic)]
        self._progress(f"storing {len(every)} questions")
        for start in range(0, len(every), _AT_ONCE):
            some = every[start : start + _AT_ONCE]
            await asyncio.gather(*(answers.store(each, b"answer", _TTL_MS, Deadline.never()) for each in some))

    async def _look_up(self, answers: Answers) -> list[bool]:
        """Whether each lookup was a hit."""
        self._progress(f"looking {len(self._measured)} questions up")
        lookups = [await answers.lookup(each.asked, None, Deadline.never()) for each in self._measured]
        return [found.entry is not None for found in lookups]

    async def _judge(self, answers: Answers) -> dict[str, object]:
        """Look the traffic up and report of each sample what its label says. Returns how many verdicts and lookups
        there were, and the threshold that is in force then."""
        self._progress(f"{self._verdicts} verdicts on {len(self._traffic)} lookups at most")
        judged = lookups = 0
        for each in self._traffic:
            if judged == self._verdicts:
                break
            lookups += 1
            if sample := (await answers.lookup(each.asked, None, Deadline.never())).sample:
                key, score, accepted = sample.key, sample.score, sample.accepted
                await answers.verified(each.asked.traffic, key, score, accepted, each.duplicate)
                judged += 1
        threshold = answers.verification.thresholds.of(self._traffic[0].asked.traffic)
        return {"verdicts": judged, "traffic": lookups, "threshold": threshold}

    def _right(self, hits: Sequence[bool]) -> int:
        return sum(hit and each.duplicate for hit, each in zip(hits, self._measured, strict=True))

    def _summary(self, hits: Sequence[bool]) -> dict[str, object]:
        from scipy.stats import binomtest  # takes a second

        right, duplicates = self._right(hits), sum(each.duplicate for each in self._measured)
        wrong = sum(hits) - right
        low, high = binomtest(wrong, len(hits)).proportion_ci(0.95, method="exact")  # Clopper and Pearson
        return {
            "found": _share(right, duplicates),
            "wrong_of_lookups": _share(wrong, len(hits)),
            "wrong_of_lookups_95": [round(low, 5), round(high, 5)],
            "precision": _share(right, right + wrong),
            "right": right,
            "wrong": wrong,
        }

    def _nearest(self, vectors: dict[str, Vector | None]) -> list[Nearest]:
        """The cosines of the pairs; that of a question that is too long is 0."""
        none = np.zeros(DIMENSION, np.float32)
        rows = {text: none if vector is None else vector for text, vector in vectors.items()}
        return [
            Nearest(1.0 if each.stored.asked == each.asked.asked else float(a @ b), each.duplicate)
            for each in self._measured
            for a, b in [(rows.get(each.stored.asked, none), rows.get(each.asked.asked, none))]
        ]


def _keyed(text: str, number: int) -> KeyedQuestion:
    """A question after a system message of its own."""
    system = chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=f"conversation {number}")
    messages = [system, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)]
    return keyed(cache_pb2.Question(tenant=_TENANT, model_class="fast", messages=messages))


def _share(count: int, of: int) -> float:
    return round(count / max(1, of), 5)


@dataclass(frozen=True, slots=True)
class Nearest:
    """A pair by its cosine."""

    similarity: float
    duplicate: bool


def calibrated(nearest: Sequence[Nearest], wrong_share: float) -> dict[str, float]:
    """The hits of the loosest threshold with wrong hits of at most `wrong_share` of all lookups. It is chosen on the
    pairs that it is measured on, so no threshold chosen beforehand does better."""
    best = {"threshold": 1.0, "found": 0.0, "wrong_of_lookups": 0.0}
    duplicates = max(1, sum(each.duplicate for each in nearest))
    found = wrong = 0
    ordered = sorted(nearest, key=lambda each: -each.similarity)
    for similarity, equal in groupby(ordered, key=lambda each: each.similarity):
        for each in equal:
            wrong += not each.duplicate
            found += each.duplicate
        if wrong > wrong_share * len(nearest):
            break
        shares = {"found": found / duplicates, "wrong_of_lookups": wrong / len(nearest)}
        best = {name: round(value, 4) for name, value in {"threshold": similarity, **shares}.items()}
    return best
