"""The cache itself: the entry for this very question, else the nearest that means the same.

An entry whose lifetime is over is no hit. It is kept for `stale_ms` and named in the miss of its own question: a
gateway whose models all fail may serve it rather than no answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from services.cache.embedding import Embedder
from services.cache.entries import Entry
from services.cache.errors import EmbeddingTooLate
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.semantic_match import rules
from services.cache.semantic_match.record import NEVER
from services.cache.semantic_match.traffic import Traffic
from services.cache.semantic_match.verification import Verification, VerificationSample
from services.cache.store import Store
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from services.runtime.shared_state import SharedStateLost

if TYPE_CHECKING:
    from services.cache.vectors import Vector

_CANDIDATES = 8  # that are looked for: some may be gone, or refused
_MARGIN = 0.001  # by how much the same two questions may be nearer another time: the index keeps 16-bit floats


class Verdict(Enum):
    """How a lookup ended."""

    MISS = "miss"
    EXACT = "exact"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class LookupResult:
    """The result of a lookup. `similarity` is that of the nearest question, None where none was compared. `candidate`:
    whether a stored question was near and no rule refused it, whether or not its answer was given; `sample`: that
    answer is to be judged.

    `stale`, with a miss: the entry for this very question, whose time is over. `expired_ms`: for how long that of a hit
    is over, which the caller wants all the same. `local`: this process's memory was all that could be asked.
    `language`: the ISO 639-1 code of a question's language that the embedder does not know, so nothing was compared.
    """

    verdict: Verdict
    entry: Entry | None = None
    ttl_ms: int = 0
    similarity: float | None = None
    refused: str = ""
    stale: Entry | None = None
    local: bool = False
    candidate: bool = False
    sample: VerificationSample | None = None
    expired_ms: int = 0
    language: str = ""


class Answers:
    """Answers by question. `unseen`: how two texts differ in what their vectors do not show, for people. `unknown`: the
    language of a text that the embedder does not know, ISO 639-1; empty where it does. `now_ms` is Unix time in
    milliseconds."""

    def __init__(
        self,
        memory: Memory,
        store: Store,
        embedder: Embedder,
        unseen: Callable[[str, str], str],
        unknown: Callable[[str], str],
        verification: Verification,
        now_ms: Callable[[], int],
        ready: Callable[[], Awaitable[None]] | None = None,
    ):
        """`ready` returns once texts can be compared; None: they can."""
        self._ready = ready
        self.verification, self._unseen, self._unknown = verification, unseen, unknown
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
    ) -> LookupResult:
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
        if (min_similarity is None or min_similarity < 1) and not found.language:
            self.verification.look_up(question.traffic, found.candidate)
        if not (unsaid or self._store.local):
            return found
        self.stats.local += 1
        return replace(found, local=True)

    async def _exact(self, question: KeyedQuestion, deadline: Deadline) -> tuple[LookupResult | None, bool]:
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

    def _expired(self, question: KeyedQuestion, within_ms: int) -> LookupResult | None:
        """The hit of this very question whose time has not been over for long. It is none that keeps an entry alive."""
        now_ms = self._now_ms()
        entry = self.entries.stale(question.key, now_ms)
        if entry is None or (expired_ms := max(1, now_ms - entry.expires_at_ms)) > within_ms:
            return None
        self.stats.exact_hits += 1
        return LookupResult(Verdict.EXACT, entry, expired_ms=expired_ms)

    async def _alike(
        self, question: KeyedQuestion, min_similarity: float | None, deadline: Deadline, max_wrong: float
    ) -> LookupResult:
        found = LookupResult(Verdict.MISS)
        threshold = self.verification.thresholds.for_lookup(question.traffic, max_wrong)
        least = threshold if min_similarity is None else min_similarity
        compares = (least < 1 or self.verification.on) and (min_similarity or 0) < 1
        if compares and (language := await self._language(question)):
            self.stats.unknown_language += 1
            found = LookupResult(Verdict.MISS, language=language)
        elif compares and self._memory.may_be_near(question):
            found = await self._nearest(question, least, deadline)
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
        compared = not (question.exact_only or await self._language(question))
        vector = await self.embed(question.asked, question.tenant, deadline) if compared else None
        now_ms = self._now_ms()
        entry = Entry(
            key=question.key,
            tenant=question.tenant,
            partition=question.partition,
            asked=question.asked.encode(),
            answer=answer,
            expires_at_ms=now_ms + ttl_ms,
            used_at_ms=now_ms,
        )
        return await self._store.insert(entry, vector, epoch)

    async def _language(self, question: KeyedQuestion) -> str:
        """The language of a question if the embedder does not know it."""
        if self._ready:
            await self._ready()
        return self._unknown(question.asked)

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
        """The score that an entry must require, so that `asked` is none of its hits."""
        stored, tenant = entry.asked.decode(), entry.tenant
        a, b = [await self.embed(text, tenant, deadline) for text in (asked, stored)]
        if a is None or b is None:
            return NEVER
        return float(a @ b) + _MARGIN

    async def verified(self, traffic: Traffic, key: str, score: float, accepted: bool, right: bool) -> bool:
        """A sample is judged: it counts for the threshold of its traffic, and a wrong one that was given is given no
        more. Returns whether an entry was tightened. Raises what `Store.tighten` does."""
        self.verification.thresholds.verify(traffic, score, accepted, right)
        tightened = accepted and not right and await self._store.tighten(key, traffic.tenant, score + _MARGIN)
        self.stats.tightened += tightened
        return tightened

    async def remove(self, removal: Removal) -> int:
        """Remove an entry, or all of a tenant, for good when this returns. Returns how many there were."""
        return await self._store.remove(removal)

    def sweep(self) -> bool:
        """Remove what was kept long enough, and write down what was used since the last sweep. Returns whether there is
        more to remove: one call takes a limited number of entries."""
        self.embedder.sweep()
        now_ms = self._now_ms()
        gone = self._memory.expire(now_ms)
        used, self._used = self._used, Counter()
        self._store.sweep([(entry, times) for key, times in used.items() if (entry := self.entries.held(key))], gone)
        return self.entries.overdue(now_ms)

    def close(self) -> None:
        """End the threads. Nothing may be asked of the cache any more."""
        self._memory.close()
        self.embedder.close()

    async def _nearest(self, question: KeyedQuestion, least: float, deadline: Deadline) -> LookupResult:
        """The nearest question that nothing speaks against is the candidate; it is given from a score of `least` on."""
        vector = await self.embed(question.asked, question.tenant, deadline)
        if vector is None:
            return LookupResult(Verdict.MISS)
        near = await self._memory.nearest(question, vector, _CANDIDATES)
        missed = LookupResult(Verdict.MISS, similarity=near[0][1] if near else None)
        for key, similarity in near:
            if similarity < self.verification.least(least):
                break
            entry, is_near = self.entries.get(key, self._now_ms()), similarity >= least
            if entry is None:  # gone since it was found
                continue
            if not (refused := self._refused(question, entry, similarity)):
                found = self._serve(Verdict.SEMANTIC, entry, similarity) if is_near else missed
                return replace(found, candidate=True, sample=self._draw(entry, similarity, is_near))
            if is_near and not missed.refused:
                missed = replace(missed, refused=refused)
        return missed

    def _refused(self, question: KeyedQuestion, entry: Entry, similarity: float) -> str:
        """Why it is no hit, however near it is, for people; empty where nothing speaks against it."""
        asked, stored = question.asked, entry.asked.decode()
        reported = "reported as wrong" if similarity < entry.least_score else ""
        return rules.difference(asked, stored, question.tenant) or self._unseen(asked, stored) or reported

    def _draw(self, entry: Entry, score: float, accepted: bool) -> VerificationSample | None:
        if not self.verification.draws():
            return None
        return VerificationSample(entry.key, score, accepted, entry.asked.decode(), entry.answer)

    def _serve(self, verdict: Verdict, entry: Entry, similarity: float | None) -> LookupResult:
        now_ms = self._now_ms()
        self.entries.use(entry, now_ms)
        self._used[entry.key] += 1
        return LookupResult(verdict, entry, entry.expires_at_ms - now_ms, similarity)

    async def embed(self, text: str, tenant: str, deadline: Deadline) -> Vector | None:
        """A text's unit vector, or None where it is too long. Raises `EmbeddingTooLate`."""
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(None if remaining == float("inf") else remaining):
                return await self.embedder.embed(text, tenant)
        except TimeoutError:
            raise EmbeddingTooLate("the deadline passed before the question was embedded") from None
