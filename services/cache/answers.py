"""The cache itself: the entry for this very question, else the nearest that means the same.

An entry whose time is over is no hit. For a while it stays, to be told of with a miss of its very question: who would
have no answer at all may prefer an old one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from enum import Enum

from services.cache.embedding import Embedder
from services.cache.entries import Entry
from services.cache.errors import EmbeddingTooLate
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.store import Store
from services.cache.tombstones import Removal
from services.cache.vectors import Vector
from services.cache.verdict import verdicts
from services.cache.verdict.tightening import NEVER
from services.cache.verdict.traffic import Traffic
from services.cache.verdict.verdicts import Judged, Unseen
from services.cache.verdict.verification import Sample, Verification
from services.runtime.deadline import Deadline
from services.runtime.shared_state import SharedStateLost

_CANDIDATES = 8  # that are looked for: some may be gone, or refused
_MARGIN = 0.001  # by how much the same two questions may be nearer another time: the index keeps 16-bit floats


class Verdict(Enum):
    """How a lookup ended."""

    MISS = "miss"
    EXACT = "exact"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found. `similarity` is that of the nearest question, None where none was compared. `candidate`:
    whether one was near that no difference refuses, given or not; `sample`: it is to be judged.

    `stale`, with a miss: the entry for this very question, whose time is over. `expired_ms`: for how long that of a hit
    is over, which the caller wants all the same. `local`: this process's memory was all that could be asked.
    """

    verdict: Verdict
    entry: Entry | None = None
    ttl_ms: int = 0
    similarity: float | None = None
    refused: str = ""
    stale: Entry | None = None
    local: bool = False
    candidate: bool = False
    sample: Sample | None = None
    expired_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Best:
    """Of the candidates, the one that is given, or would be first if less were asked for."""

    passes: bool = False
    score: float = -1.0
    similarity: float = 0.0
    entry: Entry | None = None
    judged: Judged = Judged()  # noqa: RUF009

    @property
    def rank(self) -> tuple[bool, float]:
        return self.passes, self.score


class Answers:
    """Answers by question. `now_ms` is Unix time in milliseconds."""

    def __init__(
        self,
        memory: Memory,
        store: Store,
        embedder: Embedder,
        unseen: Unseen,
        verification: Verification,
        now_ms: Callable[[], int],
    ):
        self.verification, self._unseen = verification, unseen
        self.entries, self.watchers, self.stats, self.embedder = memory.entries, memory.watchers, memory.stats, embedder
        self._memory, self._store, self._now_ms = memory, store, now_ms
        self._used: Counter[str] = Counter()  # by key: what has left memory since must not be kept alive

    async def lookup(
        self,
        question: KeyedQuestion,
        min_similarity: float | None,
        deadline: Deadline,
        stale_within_ms: int = 0,
        max_wrong: float = 1.0,
    ) -> Found:
        """The exact entry, also one whose time has been over for `stale_within_ms` at most; else the nearest that is
        judged to ask the same. `min_similarity`: the least cosine that the caller accepts; 1 asks for the exact one
        alone. `max_wrong`: wrong hits that it allows for among such lookups, as a share; the cache's own at most.

        Raises `EmbeddingTooLate` when the deadline passes before the question could be compared.
        """
        found, unsaid = await self._exact(question, deadline)
        if found is None and stale_within_ms:
            found = self._expired(question, stale_within_ms)
        if found is None:
            found = await self._alike(question, min_similarity, deadline, max_wrong)
        if min_similarity is None or min_similarity < 1:
            self.verification.look_up(question.traffic, found.candidate)
        if not (unsaid or self._store.local):
            return found
        self.stats.local += 1
        return replace(found, local=True)

    async def _exact(self, question: KeyedQuestion, deadline: Deadline) -> tuple[Found | None, bool]:
        """The hit of this very question, and whether the store did not say if it has one."""
        entry, unsaid = self.entries.get(question.key, self._now_ms()), False
        if entry is None:
            try:
                await self._store.fetch(question, deadline)
            except SharedStateLost:
                unsaid = True
            entry = self.entries.get(question.key, self._now_ms())
        if entry is None:
            return None, unsaid
        self.stats.exact_hits += 1
        return self._serve(Verdict.EXACT, entry, None), unsaid

    def _expired(self, question: KeyedQuestion, within_ms: int) -> Found | None:
        """The hit of this very question whose time has not been over for long. It is none that keeps an entry alive."""
        now_ms = self._now_ms()
        entry = self.entries.stale(question.key, now_ms)
        if entry is None or (expired_ms := max(1, now_ms - entry.expires_at_ms)) > within_ms:
            return None
        self.stats.exact_hits += 1
        return Found(Verdict.EXACT, entry, expired_ms=expired_ms)

    async def _alike(
        self, question: KeyedQuestion, min_similarity: float | None, deadline: Deadline, max_wrong: float
    ) -> Found:
        found = Found(Verdict.MISS)
        threshold = self.verification.thresholds.for_lookup(question.traffic, max_wrong)
        least = threshold if min_similarity is None else min_similarity
        compares = (least < 1 or self.verification.on) and (min_similarity or 0) < 1
        if compares and self._memory.may_be_near(question):
            found = await self._nearest(question, least, deadline, max_wrong)
        if found.verdict is Verdict.SEMANTIC:
            self.stats.semantic_hits += 1
            return found
        self.stats.misses += 1
        self.stats.refused += bool(found.refused)
        return replace(found, stale=self.entries.stale(question.key, self._now_ms()))

    @property
    def epoch(self) -> int:
        """The sequence number of the last change that is known, for the store of an answer that is begun now."""
        return max(self._store.sequence, 1)  # 0 stands for none

    async def store(
        self, question: KeyedQuestion, answer: bytes, ttl_ms: int, deadline: Deadline, epoch: int = 0
    ) -> bool:
        """Keep an answer for `ttl_ms`. Returns whether it is kept, or was skipped because the store is `local`; when
        this raises it is not kept at all. `epoch`: when the answer was begun; 0 for just now.

        Raises `Conflict` when its entry or its tenant was removed since: what was removed must not come back.
        """
        epoch = epoch or self._store.sequence
        kept = not self._store.local and await self._insert(question, answer, ttl_ms, deadline, epoch)
        self.stats.stores += kept
        self.stats.skipped += not kept
        return kept

    async def _insert(
        self, question: KeyedQuestion, answer: bytes, ttl_ms: int, deadline: Deadline, epoch: int
    ) -> bool:
        vector = await self.embed(question.asked, question.tenant, deadline)
        now_ms = self._now_ms()
        entry = Entry(
            question.key, question.tenant, question.partition, question.asked.encode(), answer, now_ms + ttl_ms, now_ms
        )
        return await self._store.insert(entry, vector, epoch)

    async def wrong(self, tenant: str, key: str, asked: str | None, deadline: Deadline) -> bool:
        """Have the entry of a wrong hit, where the tenant has it, be none again of what was `asked`, nor of what is as
        far from its own question; None: of nothing that is merely alike. Returns whether the tenant has it. Raises what
        `Store.tighten` does, and `EmbeddingTooLate`."""
        entry, least = self.entries.held(key), NEVER
        if asked is not None and entry and entry.tenant == tenant:  # else there is nothing to compare with
            least = await self._just_above(asked, entry, deadline)
        tightened = await self._store.tighten(key, tenant, least)
        self.stats.tightened += tightened
        return tightened

    async def _just_above(self, asked: str, entry: Entry, deadline: Deadline) -> float:
        """What an entry must ask for, so that `asked` is none of its hits."""
        stored, tenant = entry.asked.decode(), entry.tenant
        a, b = [await self.embed(text, tenant, deadline) for text in (asked, stored)]
        if a is None or b is None:
            return NEVER
        return float(a @ b) + _MARGIN

    async def verified(
        self, traffic: Traffic, key: str, score: float, accepted: bool, right: bool, doubts: Collection[str] = ()
    ) -> bool:
        """A sample is judged: it counts for the threshold of its traffic, and a wrong one that was given is given no
        more. Returns whether an entry was tightened. Raises what `Store.tighten` does."""
        await self.verification.verify(traffic, score, accepted, right, key, doubts)
        least = score + _MARGIN
        tightened = accepted and not right and await self._store.tighten(key, traffic.tenant, least)
        self.stats.tightened += tightened
        return tightened

    async def remove(self, removal: Removal) -> int:
        """Remove an entry, or all of a tenant, for good when this returns. Returns how many there were."""
        return await self._store.remove(removal)

    def sweep(self) -> None:
        """Remove what was kept long enough, and write down what was used since the last sweep."""
        self.embedder.sweep()
        gone = self._memory.expire(self._now_ms())
        used, self._used = self._used, Counter()
        self._store.sweep([(entry, times) for key, times in used.items() if (entry := self.entries.held(key))], gone)

    def close(self) -> None:
        """End the threads. Nothing may be asked of the cache any more."""
        self._memory.close()
        self.embedder.close()

    async def _nearest(self, question: KeyedQuestion, least: float, deadline: Deadline, max_wrong: float) -> Found:
        vector = await self.embed(question.asked, question.tenant, deadline)
        if vector is None:
            return Found(Verdict.MISS)
        near = await self._memory.nearest(question, vector, _CANDIDATES)
        missed, best = Found(Verdict.MISS, similarity=near[0][1] if near else None), _Best()
        for key, similarity in near:
            entry = self.entries.get(key, self._now_ms())
            farther = best.passes and similarity <= best.score  # so that nothing from here on scores more
            if similarity < self.verification.least(least) or farther:
                break
            if entry is None:  # gone since it was found
                continue
            judged = self._judge(question, entry, similarity)
            is_near = similarity >= least
            score, is_enough = self._scores(question.traffic, key, judged, least, max_wrong)
            passes = is_near and not judged.refused and is_enough
            if not judged.refused and (self.verification.on or not judged.doubts):
                best = max(best, _Best(passes, score, similarity, entry, judged), key=lambda each: each.rank)
            if passes and not judged.doubts:
                break
            if is_near and not missed.refused:
                missed = replace(missed, refused=judged.why(score, least))
        if best.entry is None:
            return missed
        found = self._serve(Verdict.SEMANTIC, best.entry, best.similarity) if best.passes else missed
        return replace(found, candidate=True, sample=self._draw(best.entry, best.judged, best.passes))

    def _scores(self, traffic: Traffic, key: str, judged: Judged, least: float, max_wrong: float) -> tuple[float, bool]:
        """What doubts leave of it, and whether that is enough. With doubts no request loosens what was certified."""
        thresholds = self.verification.thresholds
        score = thresholds.scored(traffic, key, judged.score, judged.doubts, max_wrong)
        own = thresholds.of(traffic, max_wrong) if judged.doubts else least
        return score, score >= max(least, own)

    def _judge(self, question: KeyedQuestion, entry: Entry, similarity: float) -> Judged:
        stored = entry.asked.decode()
        judged = verdicts.judge(question.asked, stored, question.tenant, similarity, self._unseen)
        if judged.score < entry.least_score and not judged.refused:
            return replace(judged, refused="reported as wrong")
        return judged

    def _draw(self, entry: Entry, judged: Judged, accepted: bool) -> Sample | None:
        if not self.verification.draws():
            return None
        return Sample(entry.key, judged.score, accepted, entry.asked.decode(), entry.answer, judged.doubts)

    def _serve(self, verdict: Verdict, entry: Entry, similarity: float | None) -> Found:
        now_ms = self._now_ms()
        self.entries.use(entry, now_ms)
        self._used[entry.key] += 1
        return Found(verdict, entry, entry.expires_at_ms - now_ms, similarity)

    async def embed(self, text: str, tenant: str, deadline: Deadline) -> Vector | None:
        """A text's unit vector, or None where it is too long. Raises `EmbeddingTooLate`."""
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(None if remaining == float("inf") else remaining):
                return await self.embedder.embed(text, tenant)
        except TimeoutError:
            raise EmbeddingTooLate("the time was over before the question was embedded") from None
