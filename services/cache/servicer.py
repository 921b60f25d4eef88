"""`hedgerow.cache.v1.CacheService`: proto in, proto out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from google.protobuf.message import DecodeError

from hedgerow.cache.v1 import cache_pb2
from services.cache import validation
from services.cache.answers import Answers, LookupResult, Verdict
from services.cache.config import CacheSettings
from services.cache.conversion import MODEL
from services.cache.exact_parts import HOW
from services.cache.keyed_question import KeyedQuestion, keyed
from services.cache.semantic_match.traffic import Traffic
from services.cache.tombstones import Removal
from services.runtime.errors import InvalidInput, NotSupported, ServiceError
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.rpc.boundary import Call

_VERDICTS = {
    Verdict.MISS: cache_pb2.VERDICT_MISS,
    Verdict.EXACT: cache_pb2.VERDICT_EXACT,
    Verdict.SEMANTIC: cache_pb2.VERDICT_SEMANTIC,
}
_log = logging.getLogger(__name__)


class CacheServicer:
    """The contract over a cache."""

    def __init__(self, answers: Answers, settings: CacheSettings):
        self._answers, self._settings = answers, settings
        self._waiting = WaitingBytes(settings.max_waiting_bytes)

    async def Lookup(self, request: cache_pb2.LookupRequest, call: Call) -> cache_pb2.LookupResponse:
        min_similarity, stale_ms = validation.check_min_similarity(request), validation.check_stale_ms(request)
        max_wrong = validation.check_max_wrong(request)
        question, epoch = self._identify(request.question), self._answers.epoch
        with self._waiting.hold(question.tenant, request.ByteSize()):
            found = await self._answers.lookup(question, min_similarity, call.deadline, stale_ms, max_wrong)
        call.span.set_attribute("hedgerow.cache.verdict", found.verdict.value)
        if found.similarity is not None:
            call.span.set_attribute("hedgerow.cache.similarity", found.similarity)
        if found.stale is not None or found.expired_ms:
            call.span.set_attribute("hedgerow.cache.stale", True)
        if found.language:
            call.span.set_attribute("hedgerow.cache.language", found.language)
        if found.local:
            call.span.set_attribute("hedgerow.cache.local_only", True)
        try:
            return _found(found, question, epoch)
        except DecodeError:
            return await self._instead_of_damage(found, question)

    async def Store(self, request: cache_pb2.StoreRequest, call: Call) -> cache_pb2.StoreResponse:
        question = self._identify(request.question)
        validation.check_answer(request.answer, self._settings)
        ttl_ms = validation.check_ttl_ms(request, self._settings)
        answer = request.answer.SerializeToString()
        with self._waiting.hold(question.tenant, request.ByteSize()):
            kept = await self._answers.store(question, answer, ttl_ms, call.deadline, request.epoch)
        if kept:
            return cache_pb2.StoreResponse(key=question.key, ttl_ms=ttl_ms)
        call.span.set_attribute("hedgerow.cache.skipped", True)
        return cache_pb2.StoreResponse(key=question.key, skipped=True)

    async def Invalidate(self, request: cache_pb2.InvalidateRequest, call: Call) -> cache_pb2.InvalidateResponse:
        validation.check_target(request)
        removed = await self._answers.remove(Removal(request.key, request.tenant or request.owner))
        return cache_pb2.InvalidateResponse(removed=removed)

    async def ReportVerdict(
        self, request: cache_pb2.ReportVerdictRequest, call: Call
    ) -> cache_pb2.ReportVerdictResponse:
        validation.check_report(request)
        asked = self._asked(request) if request.HasField("question") else None
        tenant, sample, tightened = request.tenant, request.sample, False
        with self._waiting.hold(tenant, request.ByteSize()):
            if request.HasField("sample"):
                judged = (sample.key, sample.score, sample.accepted, request.right)
                tightened = await self._answers.verified(Traffic(tenant, sample.category), *judged)
            elif not request.right:
                tightened = await self._answers.wrong(tenant, request.key, asked, call.deadline)
        return cache_pb2.ReportVerdictResponse(tightened=tightened)

    async def WatchInvalidations(
        self, request: cache_pb2.WatchInvalidationsRequest, call: Call
    ) -> AsyncIterator[cache_pb2.WatchInvalidationsResponse]:
        await self._answers.watchers.in_force()
        with self._answers.watchers.watch() as watch:
            yield cache_pb2.WatchInvalidationsResponse(epoch=self._answers.epoch)
            async with aclosing(watch) as removals:
                async for removal in removals:
                    target = {"key": removal.key} if removal.key else {"tenant": removal.tenant}
                    yield cache_pb2.WatchInvalidationsResponse(**target, epoch=self._answers.epoch)

    async def Embed(self, request: cache_pb2.EmbedRequest, call: Call) -> cache_pb2.EmbedResponse:
        validation.check_texts(list(request.texts))
        if self._settings.embedder == "none":
            raise NotSupported(f"embeddings: {HOW}")
        reply = cache_pb2.EmbedResponse(model=MODEL)
        # One after the other: at most one of them is ahead of a lookup's question.
        for number, text in enumerate(request.texts):
            vector = await self._answers.embed(text, request.tenant, call.deadline)
            if vector is None:
                limit = f"at most {self._settings.max_embedded_tokens} tokens"
                raise InvalidInput(f"texts[{number}]", limit, f"{len(text)} characters")
            reply.embeddings.add(values=vector)
        return reply

    async def GetStats(self, request: cache_pb2.GetStatsRequest, call: Call) -> cache_pb2.GetStatsResponse:
        stats, entries, embedder = self._answers.stats, self._answers.entries, self._answers.embedder
        thresholds = self._answers.verification.thresholds
        measured = thresholds.measured
        response = cache_pb2.GetStatsResponse(
            lookups=stats.exact_hits + stats.semantic_hits + stats.misses,
            exact_hits=stats.exact_hits,
            semantic_hits=stats.semantic_hits,
            misses=stats.misses,
            refused=stats.refused,
            stores=stats.stores,
            evictions=stats.evictions,
            expirations=stats.expirations,
            entries=len(entries),
            bytes=entries.bytes,
            embedding_hits=embedder.hits,
            embedding_misses=embedder.misses,
            local_only=stats.local,
            tightened=stats.tightened,
            verified=measured.samples,
            verified_wrong=measured.wrong,
            threshold_alarms=thresholds.alarms,
            threshold=thresholds.of(Traffic(request.tenant)),
            drift=thresholds.drift(request.tenant),
        )
        for category, record in sorted(thresholds.by_category(request.tenant).items()):
            response.category_thresholds.add(
                category=category, threshold=record.threshold, verified=record.count, drift=record.drift
            )
        if measured.samples:
            response.wrong_share, response.wrong_share_lower = measured.estimate, measured.lower
            response.wrong_share_upper = measured.upper
        return response

    def drain(self) -> None:
        """End the streams that would otherwise stay open for as long as their clients like."""
        self._answers.watchers.close()

    async def _instead_of_damage(self, found: LookupResult, question: KeyedQuestion) -> cache_pb2.LookupResponse:
        """A miss, where the store has returned something that is no answer. It is removed: else each question near it
        would fail."""
        _log.error("an entry of tenant %r has no answer that can be read, and is removed", question.tenant)
        for key in {each.key for each in (found.entry, found.stale, found.sample) if each}:
            with suppress(ServiceError):  # the store does not answer: the next lookup tries again
                await self._answers.remove(Removal(key, question.tenant))
        return _found(LookupResult(Verdict.MISS, local=found.local), question, self._answers.epoch)

    def _asked(self, request: cache_pb2.ReportVerdictRequest) -> str:
        """The text that is compared, of the question that came with a report."""
        question = cache_pb2.Question()
        question.CopyFrom(request.question)
        question.tenant = question.tenant or request.tenant
        if question.tenant != request.tenant:
            raise InvalidInput("question.tenant", "the report's, or none", "another")
        return self._identify(question).asked

    def _identify(self, question: cache_pb2.Question) -> KeyedQuestion:
        validation.check_question(question, self._settings)
        return keyed(question)


def _found(found: LookupResult, question: KeyedQuestion, epoch: int) -> cache_pb2.LookupResponse:
    reply = cache_pb2.LookupResponse(
        verdict=_VERDICTS[found.verdict],
        key=found.entry.key if found.entry else question.key,
        ttl_ms=found.ttl_ms,
        refused=found.refused,
        expired_ms=found.expired_ms,
        local_only=found.local,
        epoch=epoch,
        language=found.language,
    )
    if found.similarity is not None:
        reply.similarity = found.similarity
    if found.entry:
        reply.answer.ParseFromString(found.entry.answer)
    if found.stale:
        reply.stale.ParseFromString(found.stale.answer)
    if sample := found.sample:
        reply.sample.key, reply.sample.asked = sample.key, sample.asked
        reply.sample.score, reply.sample.accepted = sample.score, sample.accepted
        reply.sample.answer.ParseFromString(sample.answer)
        reply.sample.category = question.category
    return reply
