"""How right semantic hits are, on labelled pairs: what the cache's own `lookup` answers, and cosine alone beside it.

Of each pair `a` is stored and `b` is looked up: once with nothing else to compare it with, and once in the presence of
every other `a`. With verdicts a part of the pairs is traffic that is judged by its labels, and the rest is measured
before and after it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from bench.cache import pairs, parts
from bench.cache.pairs import Judged, Labels, Pair, Traffic, divided
from bench.stats import percentiles
from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.engines import DIMENSION, Engine
from services.cache.keyed_question import KeyedQuestion, keyed
from services.cache.semantic_match.bounds import clopper_pearson
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline

_AT_ONCE = 64  # stores, and questions that are compared with all others
_TTL_MS = 24 * 60 * 60 * 1000
_ORACLE = 0.01  # wrong hits of all lookups
_TENANT = "bench"
_SEED = 5
Progress = Callable[[str], None]


async def measure(
    path: Path,
    progress: Progress,
    verdicts: int = 0,
    lookups: int | None = None,
    seed: int = 0,
) -> dict[str, object]:
    """The shares of hits and of wrong hits, by cosine alone and with the rules. With `verdicts`: on the pairs that are
    held out, before and after at most so many verdicts on the other pairs. `lookups`: use only so many pairs. Raises
    `BadPairs`. Takes two minutes for 20,000 pairs."""
    given = _some(pairs.read(path), lookups)
    share = 1.0 if verdicts else 0.0
    settings = CacheSettings(database="", max_entries=max(len(given), CacheSettings().entries), verify_share=share)
    engine = await asyncio.to_thread(parts.load, settings)
    judged, measured = divided(given, seed) if verdicts else ([], given)
    result: dict[str, object] = {"file": str(path), "lookups": len(measured), "embedder": engine.name}
    result["duplicates"] = sum(pair.duplicate for pair in measured)
    result["decided_by"] = f"cosine of {settings.similarity_threshold}"
    for name, apart in (("alone", True), ("together", False)):
        mode = Mode(name, measured, apart, progress, Traffic(judged, verdicts))
        result[name] = await mode.measure(settings, engine)
        progress(f"{name}: {result[name]}")
    return result


def _some(given: list[Pair], lookups: int | None) -> list[Pair]:
    """So many of them, the same each time."""
    if lookups is None or lookups >= len(given):
        return given
    return [given[number] for number in sorted(random.Random(_SEED).sample(range(len(given)), lookups))]


class Mode:
    """Each pair in a partition of its own, or all in one. `traffic` is looked up and judged before what is measured."""

    def __init__(self, name: str, given: Sequence[Pair], apart: bool, progress: Progress, traffic: Traffic):
        self._name, self._progress, self._apart, self._traffic = name, progress, apart, traffic
        all_pairs = [*given, *traffic.pairs]
        self._stored = [_keyed(pair.a, number if apart else 0) for number, pair in enumerate(all_pairs)]
        asked = [_keyed(pair.b, number if apart else 0) for number, pair in enumerate(all_pairs)]
        compared = zip(self._stored, asked, all_pairs, strict=True)
        labelled = [Pair(a.asked, b.asked, pair.duplicate) for a, b, pair in compared]
        self._asked, self._before = asked[: len(given)], asked[len(given) :]
        self._pairs, self._labels = labelled[: len(given)], Labels(labelled)
        self._ms: dict[str, list[float]] = {"embed": [], "search": [], "verdict": [], "whole": []}

    async def measure(self, settings: CacheSettings, engine: Engine) -> dict[str, object]:
        embedder, memory = parts.TimedEmbedder(engine, settings), parts.TimedMemory(settings)
        learnt: dict[str, object] = {}
        async with parts.running(settings, engine, embedder, memory) as (answers, _):
            await self._store(answers)
            hits = await self._look_up(answers, embedder, memory)
            times = {part: percentiles(taken, 2) for part, taken in self._ms.items() if len(taken) > 1}
            if self._before:
                learnt["before"] = self._told(hits)
                self._progress(
                    f"{self._name}: {self._traffic.verdicts} verdicts on {len(self._before)} lookups at most"
                )
                learnt |= await self._traffic.judge(answers, self._before, self._labels)
                hits = await self._look_up(answers, embedder, memory)
        self._progress(f"{self._name}: cosine alone")
        told = self._told(hits)
        nearest = await asyncio.to_thread(self._nearest, embedder.vectors)
        oracles = {"at_1_percent_wrong": _ORACLE, "at_the_same_error": told["wrong"] / len(hits)}
        cosine = {name: calibrated(nearest, share) for name, share in oracles.items()}
        return {**told, **learnt, "ms": times, "cosine_alone_oracle": cosine}

    async def _store(self, answers: Answers) -> None:
        self._progress(f"{self._name}: storing {len(self._stored)} questions")
        for start in range(0, len(self._stored), _AT_ONCE):
            some = self._stored[start : start + _AT_ONCE]
            await asyncio.gather(*(answers.store(each, b"answer", _TTL_MS, Deadline.never()) for each in some))

    async def _look_up(
        self, answers: Answers, embedder: parts.TimedEmbedder, memory: parts.TimedMemory
    ) -> list[Judged | None]:
        """Of each lookup whether its hit was right, None for a miss."""
        self._progress(f"{self._name}: looking {len(self._asked)} questions up")
        hits: list[Judged | None] = []
        for question in self._asked:
            embedder.took_ms = memory.took_ms = None
            started = time.perf_counter()
            found = await answers.lookup(question, None, Deadline.never())
            self._note((time.perf_counter() - started) * 1000, embedder.took_ms, memory.took_ms)
            hits.append(self._labels.judge(found.entry.asked.decode(), question.asked) if found.entry else None)
        return hits

    def _note(self, whole_ms: float, embed_ms: float | None, search_ms: float | None) -> None:
        self._ms["whole"].append(whole_ms)
        if embed_ms is not None and search_ms is not None:  # else: it was there as it was asked
            self._ms["embed"].append(embed_ms)
            self._ms["search"].append(search_ms)
            self._ms["verdict"].append(whole_ms - embed_ms - search_ms)

    def _told(self, hits: Sequence[Judged | None]) -> dict[str, Any]:
        counts = {judged: hits.count(judged) for judged in Judged}
        right, wrong = counts[Judged.RIGHT], counts[Judged.WRONG]
        duplicates = [hit for hit, pair in zip(hits, self._pairs, strict=True) if pair.duplicate]
        low, high = clopper_pearson(wrong, len(hits), confidence=0.975)  # of each side
        return {
            "found": _share(duplicates.count(Judged.RIGHT), len(duplicates)),
            "wrong_of_lookups": _share(wrong, len(hits)),
            "wrong_of_lookups_95": [round(low, 5), round(high, 5)],
            "precision": _share(right, right + wrong),
            **{judged.value: count for judged, count in counts.items()},
        }

    def _nearest(self, vectors: dict[str, Vector | None]) -> list[Nearest]:
        """The nearest stored question to each one asked; the similarity of one that is too long is 0."""
        none = np.zeros(DIMENSION, np.float32)
        rows = {text: none if vector is None else vector for text, vector in vectors.items()}
        given = [(rows.get(pair.a, none), rows.get(pair.b, none)) for pair in self._pairs]
        if self._apart:
            return [self._judged(pair, pair.a, float(a @ b)) for pair, (a, b) in zip(self._pairs, given, strict=True)]
        texts = list(dict.fromkeys(question.asked for question in self._stored))
        stored = np.stack([rows.get(text, none) for text in texts])
        found = []
        for start in range(0, len(given), _AT_ONCE):
            similarities = np.stack([asked for _, asked in given[start : start + _AT_ONCE]]) @ stored.T
            for pair, row in zip(self._pairs[start : start + _AT_ONCE], similarities, strict=True):
                best = int(row.argmax())
                found.append(self._judged(pair, texts[best], float(row[best])))
        return found

    def _judged(self, pair: Pair, stored: str, similarity: float) -> Nearest:
        judged = self._labels.judge(stored, pair.b)
        return Nearest(1.0 if stored == pair.b else similarity, judged, pair.duplicate)


def _keyed(text: str, number: int) -> KeyedQuestion:
    """A question after a system message of its own, or of all."""
    system = chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=f"conversation {number}")
    messages = [system, chat_pb2.Message(role=chat_pb2.ROLE_USER, content=text)]
    return keyed(cache_pb2.Question(tenant=_TENANT, model_class="fast", messages=messages))


def _share(count: int, of: int) -> float:
    return round(count / max(1, of), 5)


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest question to one that was asked. `duplicate`: it has one to be found."""

    similarity: float
    judged: Judged
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
            wrong += each.judged is Judged.WRONG
            found += each.duplicate and each.judged is Judged.RIGHT
        if wrong > wrong_share * len(nearest):
            break
        shares = {"found": found / duplicates, "wrong_of_lookups": wrong / len(nearest)}
        best = {name: round(value, 4) for name, value in {"threshold": similarity, **shares}.items()}
    return best
