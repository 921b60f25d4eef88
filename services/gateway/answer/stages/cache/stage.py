"""The cache stage: the gateway's own memory first, then the cache service, while the router chooses a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from hedgerow.cache.v1 import cache_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.backends import Backends
from services.gateway.answer.context import RequestContext
from services.gateway.answer.ledger import Running
from services.gateway.answer.metrics import VERDICTS
from services.gateway.answer.results import CacheDecision, Done, Result
from services.gateway.answer.stages.cache.cache_key import CacheIdentity
from services.gateway.answer.stages.cache.l1 import Copy
from services.gateway.answer.stages.cache.write_behind import (
    is_by_another_model,
    is_free_of_private_data,
    is_storable,
    note_private,
)
from services.gateway.answer.stages.stage import AnswerStage, Work
from services.gateway.decisions import Changed
from services.gateway.guard.screen import AT_ONCE
from services.gateway.labels import Act, Bypassed, Degraded
from services.gateway.upstream.cache import Cache, Known
from services.runtime import telemetry
from services.runtime.errors import InvalidInput, ServiceError, TooLate
from services.runtime.security.private_data import find

_VERDICTS: Mapping[int, pb.CacheVerdict] = {
    cache_pb2.VERDICT_MISS: pb.CACHE_VERDICT_MISS,
    cache_pb2.VERDICT_EXACT: pb.CACHE_VERDICT_EXACT,
    cache_pb2.VERDICT_SEMANTIC: pb.CACHE_VERDICT_SEMANTIC,
}
_SPOKEN_SHARE = 0.8  # of the time left, for a hit at a pace


class Near(NamedTuple):
    """An answer in the gateway itself, its key in the cache, and where it was."""

    answer: cache_pb2.Answer | Copy
    key: str
    detail: str


class CacheStage(AnswerStage):
    """Looks up an answer, or has the new one stored."""

    name, after = "cache", ("audio", "vision")

    def __init__(self, context: RequestContext):
        super().__init__(context)
        self._identity = CacheIdentity()
        self._identities = ""  # of all models, when the question was identified
        self._sample: cache_pb2.Sample | None = None  # a stored answer that the cache wants verified

    @classmethod
    def wanted(cls, question: Question, tenant: Tenant, backends: Backends) -> bool:
        return backends.cache is not None and question.shareable

    async def start(self) -> Work | Result | None:
        context, cache = self.context, self.context.backends.cache
        self._identity = context.identifier.identify()
        self._identities = context.backends.routes.identity("")
        self._report_choice()
        if cache is None or self._identity.question is None:
            return None
        known = context.backends.l1.removals.known()
        if (near := self._find_near()) is None:
            return self._look_up(cache, self._identity.question, known)
        if self._pace or not context.privacy.guarded.is_set():
            return self._take_near(near)
        return await self._take_near(near)

    async def _take_near(self, near: Near) -> Done:
        with self.context.ledger.stage(self.name) as stage:
            await self._take(pb.CACHE_VERDICT_EXACT, near.key, 1.0)
            stage.detail = near.detail
        return await self._say(near.answer)

    async def _look_up(self, cache: Cache, question: cache_pb2.Question, known: Known) -> Done | CacheDecision:
        with self.context.ledger.stage(self.name) as stage:
            found = await self._ask(cache, question, stage)
            if found is None:
                return CacheDecision(known)
            known = replace(known, epoch=found.epoch or known.epoch, key=found.key)
            if not await self._take_verdict(found, known, stage):
                return CacheDecision(known, found.stale if found.HasField("stale") else None)
        return await self._say(found.answer)

    async def _ask(self, cache: Cache, question: cache_pb2.Question, stage: Running) -> cache_pb2.LookupResponse | None:
        """The reply of the cache, where there is time for it and the breaker permits it; None without one."""
        ledger, tenant, breaker = self.context.ledger, self.context.tenant.name, self.context.backends.cache_breaker
        if not ledger.worth_starting(self.name, stage):
            return None
        permit = breaker.enter(tenant)
        if permit is None:
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, breaker.why(tenant)
            ledger.final.cache.verdict = pb.CACHE_VERDICT_UNAVAILABLE
            ledger.decide(Act.BREAKER_SKIPPED, self.name, stage.detail)
            return None
        try:
            with permit:
                return await cache.lookup(self._request(question), stage.budget_s, telemetry.propagate(stage.span))
        except ServiceError as problem:
            self.fallback(problem, stage)
            return None

    async def _say(self, answer: cache_pb2.Answer | Copy) -> Done:
        """Answer with a hit, all at once, or at its pace within 80% of the time left."""
        context, ledger = self.context, self.context.ledger
        if not self._pace:
            return await context.answer_with(answer.text, answer.model, answer.finish_reason)
        await context.text_writer.say_at_pace(answer.text, self._pace, ledger.remaining() * _SPOKEN_SHARE)
        return Done(await context.text_writer.finish(answer.finish_reason), answer.model)

    @property
    def _pace(self) -> float:
        """The pace of a hit in characters a second; 0 for all at once, as for items of a batch, which no client reads
        along."""
        return 0 if self.context.in_background else self.context.question.request.cache.hit_chars_per_s

    def fallback(self, problem: ServiceError, stage: Running) -> None:
        """Continue without an answer of the cache: a model makes one."""
        ledger = self.context.ledger
        stage.detail = problem.outline
        if isinstance(problem, InvalidInput):  # the cache works, and cannot store this question
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, problem.message
            ledger.final.cache.reason = Bypassed.TOO_LARGE
            ledger.decide(Act.FALLBACK_BYPASSED, self.name, problem.message)
            return
        late = isinstance(problem, TooLate)
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        ledger.final.cache.verdict = pb.CACHE_VERDICT_UNAVAILABLE
        ledger.decide(Act.BUDGET_SKIPPED if late else Act.FALLBACK_SKIPPED, self.name, problem.outline)

    def after_final(self, final: pb.Final) -> None:
        """Have the answer stored by the first of its readers, and the sample of the cache judged."""
        self._have_judged()
        context, generation, identity = self.context, self.context.prior[Done].generation, self._identity
        if identity.question is None or generation is None or generation.report.stored:
            return
        if not is_storable(final, context.question.request.sampling):
            return
        if is_by_another_model(final.model, generation, self._identities):
            return
        masks, decisions = context.privacy.checks.masks if context.privacy.checks else (), context.ledger.decisions
        is_long = len(final.text) > AT_ONCE
        if not is_long and find(final.text, masks):
            note_private(decisions)
            return
        look = partial(is_free_of_private_data, final.text, masks, decisions) if masks and is_long else None
        generation.report.stored = True
        answer = cache_pb2.Answer(
            text=final.text, model=final.model, finish_reason=final.finish_reason, usage=final.usage
        )
        request = cache_pb2.StoreRequest(question=identity.question, answer=answer, ttl_ms=identity.eligibility.ttl_ms)
        context.backends.write_behind.store(identity.key, request, generation.job.known, look)

    def _have_judged(self) -> None:
        context, sample = self.context, self._sample
        if (
            sample is None
            or context.backends.verification is None
            or context.privacy.private
            or context.question.pixels
        ):
            return
        context.backends.verification.submit(sample, context.inputs.for_model(), context.tenant, context.ledger.span)

    def _request(self, question: cache_pb2.Question) -> cache_pb2.LookupRequest:
        policy = self.context.question.request.cache
        similarity = policy.min_similarity if policy.HasField("min_similarity") else None
        if question.exact_only:
            similarity = 1.0
        stale_ms = self.context.tenant.hits.revalidate_ms if self.context.revalidate else 0
        return cache_pb2.LookupRequest(
            question=question,
            min_similarity=similarity,
            stale_within_ms=stale_ms,
            max_wrong=self._identity.eligibility.max_wrong,
        )

    def _report_choice(self) -> None:
        """Report why the cache is bypassed, or only exact hits are allowed; the words that decide it are in a
        decision. Settings that allow no more than that are no decision."""
        eligibility = self._identity.eligibility
        self._report(pb.CACHE_VERDICT_BYPASS)
        if eligibility.reason and eligibility.reason != Bypassed.UNASKED:
            act = Act.CACHE_BYPASSED if eligibility.allowed_hits == "off" else Act.CACHE_EXACT
            self.context.ledger.decide(act, self.name, ": ".join(filter(None, (eligibility.reason, eligibility.words))))

    def _report(self, verdict: pb.CacheVerdict, key: str = "", similarity: float | None = None) -> None:
        eligibility = self._identity.eligibility
        reason = self._bypassed if verdict == pb.CACHE_VERDICT_BYPASS else eligibility.reason
        report = pb.CacheReport(
            verdict=verdict, key=key, similarity=similarity, reason=reason or "", category=eligibility.category
        )
        self.context.ledger.final.cache.CopyFrom(report)

    @property
    def _bypassed(self) -> Bypassed | None:
        """Why the cache is bypassed; None where it is not."""
        inputs, eligibility = self.context.inputs, self._identity.eligibility
        if unshared := inputs.question.unshared:
            return unshared
        if self.context.privacy.private:
            return Bypassed.PRIVATE
        if not inputs.asked.whole:
            return Bypassed.INCOMPLETE
        return eligibility.reason if eligibility.allowed_hits == "off" else None

    def _find_near(self) -> Near | None:
        """The answer in the gateway itself, if any."""
        context, backends = self.context, self.context.backends
        if copy := backends.l1.get(context.tenant.name, self._identity.key):
            return Near(copy, copy.key, "exact, kept in the gateway")
        if pending := backends.write_behind.pending(context.tenant.name, self._identity.key):
            return Near(pending, "", "exact, on its way to the cache")
        return None

    async def _take_verdict(self, found: cache_pb2.LookupResponse, known: Known, stage: Running) -> bool:
        """Report the verdict of the cache. Returns whether it is a hit."""
        context, ledger, l1 = self.context, self.context.ledger, self.context.backends.l1
        if found.local_only:
            ledger.degrade(Degraded.CACHE_LOCAL)
            ledger.decide(Act.FALLBACK_LOCAL, self.name, "Redis is down: the replica answered from its memory")
        verdict = _VERDICTS.get(found.verdict, pb.CACHE_VERDICT_MISS)
        similarity = found.similarity if found.HasField("similarity") else None
        stage.detail = cache_pb2.Verdict.Name(found.verdict).removeprefix("VERDICT_").lower()
        if similarity is not None and verdict != pb.CACHE_VERDICT_EXACT:
            stage.detail += f", nearest {similarity:.3f}{f' refused: {found.refused}' if found.refused else ''}"
        if found.language:
            eligibility = replace(self._identity.eligibility, reason=Bypassed.LANGUAGE)
            self._identity = replace(self._identity, eligibility=eligibility)
            ledger.decide(Act.CACHE_EXACT, self.name, f"{Bypassed.LANGUAGE}: {found.language}")
        self._sample = found.sample if found.HasField("sample") else None
        l1.removals.learn(found.epoch)
        if verdict == pb.CACHE_VERDICT_MISS:
            self._report(verdict, similarity=similarity)
            return False
        exact = verdict == pb.CACHE_VERDICT_EXACT
        await self._take(verdict, found.key, 1.0 if exact else similarity)
        if found.expired_ms and context.revalidate:
            ledger.final.cache.stale = True
            ledger.decide(Act.CACHE_STALE, self.name, f"expired {found.expired_ms} ms ago")
            context.revalidate(self._identity.key)
        elif exact and not found.local_only:  # else an invalidation by other replicas would be missed
            l1.put(self._identity.key, found.answer, context.tenant.name, known, found.key, found.ttl_ms)
        return True

    async def _take(self, verdict: pb.CacheVerdict, key: str, similarity: float | None) -> None:
        """Report a hit. It waits for the guard as any other text does."""
        context, ledger = self.context, self.context.ledger
        await context.privacy.guarded.wait()
        self._report(verdict, key=key, similarity=similarity)
        ledger.changes.add(Changed.CACHE, after=VERDICTS[verdict])
