"""The layers between a near question and a hit: gates, a verifier, a score, and the least score that is accepted.

Without a folder of `hedgerow cache train` or `calibrate` the score of a pair is its cosine. Whatever raises a doubt is
refused, until verdicts say what that costs. With one, a verifier reads both texts, and the score is the share of such
pairs that ask the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from prometheus_client import Counter, Histogram

from services.cache.engines import Engine
from services.cache.scheduler import Scheduler
from services.cache.tokens import as_read
from services.cache.verdict import gates, score, trained
from services.cache.verdict.trained import Trained
from services.cache.verdict.verifier import MODEL, CrossEncoder, Verifier
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted

Unseen = Callable[[str, str], str]  # how two texts differ in what their vectors do not show
Pair = tuple[str, str]
UNVERIFIED = "it could not be verified"

_SECONDS = Histogram(
    "hedgerow_cache_verify_seconds", "Time to verify a pair of questions, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip
_UNVERIFIED = Counter(
    "hedgerow_cache_unverified_total", "Near questions that were missed because the verifier was late or broken."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A near question. `refused`: why it is no hit whatever its score, for people; empty otherwise. `doubts`: what
    refuses it unless a tenant's own verdicts say what that costs, in the words of `gates.DOUBTS`."""

    score: float = 0.0
    refused: str = ""
    doubts: tuple[str, ...] = ()

    def why(self, score: float, least: float) -> str:
        """Why it was not given, for people. `score`: what its doubts left; `least`: what was needed."""
        return self.refused or "".join(self.doubts[:1]) or f"a score of {score:.3f}, below {least:.3f}"


@dataclass(frozen=True, slots=True)
class Least:
    """What a hit needs at least. 1 as `similarity` asks for none."""

    similarity: float
    score: float


class Verdicts(Protocol):
    """Judges near questions, the nearest first, at most `most` for one lookup.

    `threshold`: the least score of a hit, until more is known of a tenant's own. `margin`: by how much the same two
    questions may score more another time, because the index keeps 16-bit floats.
    """

    most: int
    threshold: float
    margin: float

    def allowing(self, wrong: float) -> float:
        """The `threshold` where the share `wrong` of lookups may be wrong hits."""

    def least(self, min_similarity: float | None, threshold: float) -> Least:
        """For a request that says how similar a hit must be, or does not, where `threshold` is in force."""

    async def judge(self, asked: str, stored: str, tenant: str, similarity: float, deadline: Deadline) -> Judged:
        """A tenant's pair whose cosine is `similarity`. Too late is refused: it never raises."""

    def close(self) -> None:
        """End what runs for it."""


class ByCosine:
    """Without anything trained. `threshold`: the least cosine of a hit; a request may have its own."""

    most = 8  # the nearest may be refused while the next is right
    margin = 0.001

    def __init__(self, threshold: float, unseen: Unseen):
        self.threshold, self._unseen = threshold, unseen

    def allowing(self, wrong: float) -> float:
        return self.threshold  # a cosine says nothing about it

    def least(self, min_similarity: float | None, threshold: float) -> Least:
        least = threshold if min_similarity is None else min_similarity
        return Least(least, least)

    async def judge(self, asked: str, stored: str, tenant: str, similarity: float, deadline: Deadline) -> Judged:
        refused = _difference(asked, stored, tenant, self._unseen)
        doubts = () if refused else tuple(gates.doubts(asked, stored, tenant, similarity))
        return Judged(similarity, refused, doubts)

    def close(self) -> None:
        """Nothing runs."""


class ByScore:
    """With what was trained or calibrated. At most the share `wrong` of lookups may be wrong hits; no request loosens
    that. A verifier that takes longer than `timeout_s`, or half of the time that is left, has said no."""

    most = 3  # each takes the verifier's time
    margin = 0.02  # where the score is steepest

    def __init__(
        self, trained: Trained, verifier: Verifier | None, wrong: float, unseen: Unseen, timeout_s: float = 0.05
    ):
        self._trained, self._unseen, self._timeout_s = trained, unseen, timeout_s
        self.threshold = trained.least(wrong)
        self._reading: Scheduler[Pair, float | None] | None = None
        if verifier:
            read = verifier.logit
            self._reading = Scheduler(lambda pairs: [read(*pair) for pair in pairs], 1, "verify", _SECONDS)

    def allowing(self, wrong: float) -> float:
        return self._trained.least(wrong)

    def least(self, min_similarity: float | None, threshold: float) -> Least:
        return Least(max(self._trained.floor, min_similarity or 0), threshold)

    async def judge(self, asked: str, stored: str, tenant: str, similarity: float, deadline: Deadline) -> Judged:
        if refused := _difference(asked, stored, tenant, self._unseen):
            return Judged(refused=refused)
        if as_read(asked) == as_read(stored):  # nothing to read into it
            return Judged(1.0)
        verified = 0.0
        if self._reading:
            read = await self._verify(self._reading, (asked, stored), tenant, deadline)
            if read is None:
                return Judged(refused=UNVERIFIED)
            verified = read
        known = score.features(asked, stored, tenant, similarity, verified)
        return Judged(score.score(self._trained.weights, self._trained.intercept, known))

    def close(self) -> None:
        if self._reading:
            self._reading.stop()

    async def _verify(
        self, reading: Scheduler[Pair, float | None], pair: Pair, tenant: str, deadline: Deadline
    ) -> float | None:
        """What the verifier says; None where it does not say in time, or cannot."""
        try:
            job = reading.put(tenant, pair)
        except Exhausted:
            _UNVERIFIED.inc()
            return None
        try:
            async with asyncio.timeout(min(self._timeout_s, deadline.remaining() / 2)):
                return await asyncio.shield(job.outcome)
        except Exception:  # late, pushed out by others, or broken: all of them are a miss
            _UNVERIFIED.inc()
            return None
        finally:
            reading.withdraw(job)


def _difference(asked: str, stored: str, tenant: str, unseen: Unseen) -> str:
    """What no score makes up for."""
    return gates.difference(asked, stored, tenant) or unseen(asked, stored)


def load(folder: Path | None, threshold: float, wrong: float, engine: Engine) -> Verdicts:
    """By what is in `folder`, which was made for what `engine` embeds; without one, by cosine. Raises `Unusable`."""
    if folder is None:
        return ByCosine(threshold, engine.unseen)
    folder = folder.expanduser()
    known = trained.read(folder, engine.name)
    try:
        verifier = CrossEncoder(folder) if (folder / MODEL).is_file() else None
    except (OSError, RuntimeError, ValueError) as error:
        raise trained.Unusable(f"verdict: the verifier in {folder} is not usable: {error}") from None
    return ByScore(known, verifier, wrong, engine.unseen)


def made_by(folder: Path | None, threshold: float, engine: Engine) -> str:
    """What makes a pair's score, and what decides while nothing is verified, as a digest: what was verified of one
    score says nothing about another."""
    made = trained.digest(folder.expanduser()) if folder else "cosine"
    return sha256("\n".join((engine.name, made, repr(threshold))).encode()).hexdigest()[:16]
