"""One answer, from an admitted request to its last event.

    audio ∥ vision → cache ∥ router → llm

Most requests have neither a recording nor pictures. The lookup starts first, and the choice of a model is made while it
is under way. Whatever fails behind it, an answer
ends with a `final` event by its budget, or, when there was no text to give, with an error that says what is broken.

Events gather in an outbox and leave it together: each message costs gateway and client about 0.1 ms, as much as all of
the code here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.quota import Reservation
from services.gateway.answer.decisions import Decisions
from services.gateway.answer.l1_cache import Copy, NearCache
from services.gateway.answer.ledger import Ledger, Running
from services.gateway.answer.media import Asked, Perception, Senses
from services.gateway.answer.removals import Known
from services.gateway.answer.write_behind import Aftermath
from services.gateway.config import TEMPLATE
from services.gateway.generation.job import Job, Report
from services.gateway.generation.shared import Generation, Reading, Shared
from services.gateway.policies.priority import score
from services.gateway.policies.shared_breaker import SharedBreaker, SharedPermit
from services.gateway.policies.ticket import Ticket
from services.gateway.upstream.fleet import Fleet
from services.gateway.upstream.routes import Routes
from services.gateway.upstream.stubs import WHOLE, Cache, Pending, whose
from services.runtime import telemetry
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError, TooLate, Unavailable
from services.runtime.routing import Choice, Complexity, Demand, Tier, affordable

_COMPANY_S = 0.002  # how long the plan waits for a first token to travel with
_BYTES_PER_TOKEN = 4  # of UTF-8, in English; the engine's own count is the truth
_VERDICTS: Mapping[int, pb.CacheVerdict] = {
    cache_pb2.VERDICT_MISS: pb.CACHE_VERDICT_MISS,
    cache_pb2.VERDICT_EXACT: pb.CACHE_VERDICT_EXACT,
    cache_pb2.VERDICT_SEMANTIC: pb.CACHE_VERDICT_SEMANTIC,
}
_LOCAL = ":local"  # ends the labels of what went by this process's own memory, because Redis was away
_STOOD_IN = {"stale": "llm:stale", "template": "llm:template"}
Messages = AsyncGenerator[pb.GenerateResponse, None]


@dataclass(frozen=True, slots=True)
class StandIns:
    """What may take the place of a model's text, in this order: `stale`, `smaller`, `template`."""

    order: Sequence[str] = ("stale", "smaller", "template")
    template: str = TEMPLATE


@dataclass(frozen=True, slots=True)
class Backends:
    """What answers are made from. `models` has the stack of policies before them."""

    cache: Cache | None
    cache_breaker: SharedBreaker
    fleet: Fleet
    routes: Routes
    near: NearCache
    aftermath: Aftermath
    models: Shared
    stand_ins: StandIns = StandIns()
    senses: Senses | None = None


class Answer:
    """An answer in the making. `messages` may be iterated once; closing it leaves whatever is under way. `placed` is of
    an item of a batch: it hears when the model is asked."""

    def __init__(
        self,
        request: pb.GenerateRequest,
        tenant: Tenant,
        reservation: Reservation,
        ledger: Ledger,
        backends: Backends,
        placed: Callable[[], None] | None = None,
    ):
        self._request, self._tenant, self._ledger, self._backends = request, tenant, ledger, backends
        self._reservation, self._placed = reservation, placed
        self._outbox: list[pb.Event] = []
        ledger.tell = self._tell_stage
        self._announced = False
        self._choice: Choice | None = None
        self._question = cache_pb2.Question()
        self._question_key = b""
        self._known = Known()
        self._stale: cache_pb2.Answer | None = None
        self._generation: Generation | None = None
        self._reads_along = False
        self._asked = Asked(tuple(request.messages))
        self._perception: Perception | None = None

    async def messages(self) -> Messages:
        self._backends.fleet.request()
        try:
            async with aclosing(self._to_the_end()) as messages:
                async for message in messages:
                    yield message
        except ServiceError as error:
            self._ledger.failed(error)
            raise
        except (GeneratorExit, asyncio.CancelledError):
            self._ledger.dropped()
            raise
        finally:
            if self._perception:
                self._perception.leave()
            self._reservation.settle(self._ledger.billed_tokens)

    async def _to_the_end(self) -> Messages:
        """Whatever comes before the last event, and that."""
        ledger = self._ledger
        if self._request.images or self._request.HasField("audio"):
            async with aclosing(self._perceive()) as messages:
                async for message in messages:
                    yield message
        shared = not self._request.cache.bypass and self._asked.whole
        if shared and not ledger.finish_reason:
            self._question = _question(self._request, self._asked, self._tenant.name)
            self._question_key = _digest(self._question)
        cache = self._backends.cache if shared else None
        if cache is None:
            ledger.cache.verdict = pb.CACHE_VERDICT_BYPASS
        elif not ledger.finish_reason:
            async with aclosing(self._from_cache(cache)) as messages:
                async for message in messages:
                    yield message
        if not ledger.finish_reason:
            async with aclosing(self._from_model()) as messages:
                async for message in messages:
                    yield message
        self._take_patch()
        final = ledger.close()
        self._outbox.append(pb.Event(final=final))
        try:
            yield self._flush()
        finally:
            self._after(final, stored=cache is not None)

    async def _perceive(self) -> Messages:
        """Have the recording heard and the pictures seen."""
        senses = self._backends.senses
        assert senses is not None  # the servicer has them wherever a request may need them
        self._perception = Perception(self._request, self._tenant.name, self._ledger, senses)
        yield self._flush()
        try:
            async with aclosing(self._perception.events()) as events:
                async for event in events:
                    self._outbox.append(event)
                    yield self._flush()
            self._asked = self._perception.asked()
        except TooLate as problem:
            self._end_unheard(problem)

    def _end_unheard(self, problem: TooLate) -> None:
        """The time for hearing the question is over: there is nothing that could be answered."""
        ledger = self._ledger
        self._asked = Asked((), whole=False)
        ledger.finish_reason = chat_pb2.FINISH_REASON_BUDGET
        ledger.degraded.append("audio:budget")
        if "template" in self._backends.stand_ins.order:
            self._take_whole(self._backends.stand_ins.template, "", chat_pb2.FINISH_REASON_BUDGET)
            ledger.degraded.append(_STOOD_IN["template"])
            ledger.decide("fallback", "template", "audio", problem.outline)

    def _take_patch(self) -> None:
        if self._perception and (patch := self._perception.patch()):
            self._outbox.append(patch)

    def _after(self, final: pb.Final, *, stored: bool) -> None:
        """What is done once the client has everything."""
        self._ledger.publish()
        if stored and _is_storable(final):
            self._store(final)

    def _flush(self) -> pb.GenerateResponse:
        if not self._announced:
            self._announced = True
            self._outbox.insert(0, pb.Event(accepted=self._ledger.accepted()))
        message = pb.GenerateResponse(events=self._outbox)
        self._outbox.clear()
        return message

    def _tell_stage(self, stage: pb.Stage) -> None:
        self._outbox.append(pb.Event(stage=stage))

    async def _from_cache(self, cache: Cache) -> Messages:
        self._known = self._backends.near.removals.known()
        with self._ledger.stage("cache") as stage:
            if self._take_near(stage):
                return
            if not self._ledger.worth_starting("cache", stage):
                self._ledger.cache.verdict = pb.CACHE_VERDICT_BYPASS
                return
            permit = self._backends.cache_breaker.enter(self._tenant.name)
            if permit is None:
                self._skip_cache(stage)
                return
            lookup = cache.lookup(self._lookup_request(), stage.budget_s, telemetry.propagate(stage.span))
            try:
                self._choice = self._route()
                yield self._flush()
                await self._hear_verdict(lookup, permit, stage)
            finally:
                permit.withdrawn()  # unless it has reported
                lookup.cancel()

    async def _hear_verdict(self, lookup: Pending, permit: SharedPermit, stage: Running) -> None:
        try:
            self._take_verdict(await lookup.reply(), stage)
            permit.replied()
        except InvalidInput as refusal:  # the cache works, and this question is none that it can keep
            permit.ended(refusal)
            stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, refusal.message
            self._ledger.cache.verdict = pb.CACHE_VERDICT_BYPASS
            self._ledger.decide("fallback", "bypassed", "cache", refusal.message)
        except ServiceError as error:
            late = isinstance(error, TooLate)
            stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
            stage.detail = error.outline
            self._ledger.cache.verdict = pb.CACHE_VERDICT_UNAVAILABLE
            self._ledger.decide("budget" if late else "fallback", "skipped", "cache", error.outline)
            permit.ended(error)

    def _skip_cache(self, stage: Running) -> None:
        why = self._backends.cache_breaker.why(self._tenant.name)
        stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, why
        self._ledger.cache.verdict = pb.CACHE_VERDICT_UNAVAILABLE
        self._ledger.decide("breaker", "skipped", "cache", stage.detail)

    def _take_near(self, stage: Running) -> bool:
        """Whether this gateway has the answer itself."""
        copy, pending = self._backends.near.get(self._tenant.name, self._question_key), None
        if copy is not None:
            self._take(copy, pb.CACHE_VERDICT_EXACT, copy.key, 1.0)
            stage.detail = "exact, kept in the gateway"
        elif pending := self._backends.aftermath.pending(self._tenant.name, self._question_key):
            self._take(pending, pb.CACHE_VERDICT_EXACT, "", 1.0)
            stage.detail = "exact, on its way to the cache"
        return bool(copy or pending)

    def _take_verdict(self, found: cache_pb2.LookupResponse, stage: Running) -> None:
        if found.local_only:
            self._ledger.degraded.append(f"cache{_LOCAL}")
            self._ledger.decide("fallback", "local", "cache", "Redis is away: the replica's own memory was asked")
        verdict = _VERDICTS.get(found.verdict, pb.CACHE_VERDICT_MISS)
        similarity = found.similarity if found.HasField("similarity") else None
        stage.detail = cache_pb2.Verdict.Name(found.verdict).removeprefix("VERDICT_").lower()
        if similarity is not None and verdict != pb.CACHE_VERDICT_EXACT:
            stage.detail += f", nearest {similarity:.3f}{f' refused: {found.refused}' if found.refused else ''}"
        self._backends.near.removals.learn(found.epoch)
        self._known = replace(self._known, epoch=found.epoch or self._known.epoch, key=found.key)
        if verdict == pb.CACHE_VERDICT_MISS:
            self._ledger.cache = pb.CacheReport(verdict=verdict, similarity=similarity)
            self._stale = found.stale if found.HasField("stale") else None
            return
        exact = verdict == pb.CACHE_VERDICT_EXACT
        self._take(found.answer, verdict, found.key, 1.0 if exact else similarity)
        if exact and not found.local_only:  # else a removal by others would not be heard of
            tenant, key = self._tenant.name, self._question_key
            self._backends.near.put(key, found.answer, tenant, self._known, found.key, found.ttl_ms)

    def _take(
        self, answer: cache_pb2.Answer | Copy, verdict: pb.CacheVerdict, key: str, similarity: float | None
    ) -> None:
        self._ledger.cache = pb.CacheReport(verdict=verdict, key=key, similarity=similarity)
        self._take_whole(answer.text, answer.model, answer.finish_reason)

    def _take_whole(self, text: str, model: str, reason: chat_pb2.FinishReason) -> None:
        """A text that is there from the start."""
        self._ledger.model, self._ledger.finish_reason = model, reason
        self._ledger.add_text(text)
        self._outbox.append(pb.Event(delta=pb.TextDelta(text=text)))

    def _route(self) -> Choice:
        """Choose a model; microseconds, on the table the router pushed."""
        request, ledger = self._request, self._ledger
        with ledger.stage("router") as stage:
            demand = _demand(request, self._asked, ledger.plan["llm"].budget_ms)
            if request.model:
                if model := self._backends.routes.model(request.model):
                    affordable([model], demand)
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"{request.model}: asked for by name"
                return Choice(request.model, (), Complexity.UNSPECIFIED, fallback=False, reason=stage.detail)
            choice = self._backends.routes.choose(demand)
            if choice is None:
                first, *others = self._backends.fleet.pools
                if self._backends.routes.expected:
                    stage.outcome, stage.detail = pb.STAGE_OUTCOME_FAILED, f"no table yet: {first} stands in"
                    ledger.degraded.append("router:unavailable")
                else:
                    stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"{first}: there is no router"
                return Choice(first, tuple(others), Complexity.UNSPECIFIED, fallback=True, reason=stage.detail)
            away = "" if self._backends.routes.live else " (the router is away: its last table)"
            stage.detail = f"{choice.model}: {choice.reason}{away}"
            if choice.fallback:
                ledger.degraded.append("router:fallback")
            return choice

    async def _from_model(self) -> Messages:
        choice = self._choice or self._route()
        with self._ledger.stage("llm") as stage:
            reading = self._read(self._job(choice, stage), stage.budget_s)
            reader, report = reading.reader, reading.report
            try:
                if (self._outbox or not self._announced) and not await reader.begins(_COMPANY_S):
                    yield self._flush()
                while not self._ledger.finish_reason and (items := await reader.take()):
                    self._take_text(items, report)
                    if not self._ledger.finish_reason:
                        self._take_patch()
                        yield self._flush()
                if not self._ledger.finish_reason:
                    raise Unavailable(f"{report.model}: ended without saying why")
            except ServiceError as problem:
                self._end_early(problem, stage, report)
            finally:
                reader.leave()
                self._account(report, stage)
                self._ledger.billed_tokens = self._due(report)

    def _read(self, job: Job, within_s: float) -> Reading:
        """Read along with a generation of the same, or start one."""
        reading = self._backends.models.read(self._question_key, job, within_s)
        self._generation, self._reads_along = reading.generation, reading.joined
        if reading.joined:
            self._ledger.decisions += job.report.decisions
            if self._placed:  # it needs no place of its own
                self._placed()
        return reading

    def _job(self, choice: Choice, stage: Running) -> Job:
        request, ledger = self._request, self._ledger
        question = llm_pb2.GenerateRequest(
            messages=self._asked.for_model(),
            sampling=request.sampling if request.HasField("sampling") else None,
            response_format=request.response_format if request.HasField("response_format") else None,
            cache_salt=self._tenant.prefix_salt,
        )
        deadline = Deadline.after(stage.budget_s, ledger.clock)
        rank = score(
            premium=self._tenant.premium,
            realtime=request.realtime,
            attempt=request.attempt,
            batch=self._placed is not None,
        )
        return Job(
            question,
            (choice.model, *choice.alternatives),
            deadline,
            Ticket(rank, self._tenant.name, self._tenant.weight, deadline, self._placed),
            Deadline(ledger.opened + ledger.plan.first_text_ms / 1000, ledger.clock),
            Report(Decisions(ledger.clock)),
            self._told(stage),
            once=request.single_attempt,
            others_when_late="smaller" in self._backends.stand_ins.order,
            known=self._known,
        )

    def _told(self, stage: Running) -> telemetry.Metadata:
        """What the llm service is told beside the request: a constraint is work, which it shares among tenants."""
        told = telemetry.propagate(stage.span)
        return (*told, whose(self._tenant.name)) if self._request.HasField("response_format") else told

    def _take_text(self, items: Sequence[llm_pb2.GenerateResponse], report: Report) -> None:
        ledger, last = self._ledger, items[-1]
        text, tokens = "".join(item.text for item in items), sum(item.tokens for item in items)
        ledger.model = report.model
        if text:
            ledger.add_text(text, tokens)
            self._outbox.append(pb.Event(delta=pb.TextDelta(text=text, tokens=tokens)))
        if last.HasField("finish"):
            ledger.finish_reason = last.finish.reason
            ledger.usage.CopyFrom(last.finish.usage)
            ledger.usage.completion_tokens += report.carried_tokens

    def _end_early(self, problem: ServiceError, stage: Running, report: Report) -> None:
        """An end before the model's own: with the text there is, with what stands in for it, or with the error."""
        ledger, late = self._ledger, isinstance(problem, TooLate)
        ledger.model = report.model
        stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        stage.detail = f"{report.model}: cut off at the budget" if late else problem.outline
        if not ledger.text and self._stand_in(problem, stage):
            return
        if not ledger.text and not late:
            raise problem
        ledger.finish_reason = chat_pb2.FINISH_REASON_BUDGET if late else chat_pb2.FINISH_REASON_INTERRUPTED
        ledger.degraded.append("llm:budget" if late else "llm:interrupted")
        ledger.decide("budget" if late else "failover", "cut" if late else "impossible", "llm", stage.detail)

    def _stand_in(self, problem: ServiceError, stage: Running) -> bool:
        """Whether something takes the place of a text that did not come. A refusal of load stays one: callers must
        hear of it; and what is wrong with a request no stand-in mends. The fixed text is for what is late: of what is
        broken callers must hear, too, and who asked for an answer of a certain form can do nothing with a text."""
        if isinstance(problem, InvalidInput):
            return False
        for name in self._backends.stand_ins.order:
            if name == "stale" and self._stale:
                self._take_whole(self._stale.text, self._stale.model, self._stale.finish_reason)
            elif name == "template" and isinstance(problem, TooLate) and not self._request.HasField("response_format"):
                self._take_whole(self._backends.stand_ins.template, "", chat_pb2.FINISH_REASON_BUDGET)
            else:
                continue
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            self._ledger.degraded.append(_STOOD_IN[name])
            self._ledger.decide("fallback", name, "llm", problem.outline)
            return True
        return False

    def _account(self, report: Report, stage: Running) -> None:
        """What the generation's policies did belongs to everyone who read it; its cost to who started it."""
        ledger = self._ledger
        ledger.decisions += report.decisions
        if report.problems and report.model:
            stage.outcome = pb.STAGE_OUTCOME_REPLACED
            ledger.degraded.append("llm:replaced")
        if report.resumed:
            ledger.degraded.append("llm:resumed")
        if not stage.detail:
            stage.detail = f"{report.model}: {ledger.usage.completion_tokens} tokens"
        if report.model:
            stage.detail = "; ".join([*report.problems, stage.detail])
        model = self._backends.routes.model(report.model)
        if model and not self._reads_along:
            prompt = ledger.usage.prompt_tokens or prompt_tokens(self._asked.messages)
            completion = ledger.usage.completion_tokens or ledger.tokens
            ledger.cost_usd = model.cost_usd(prompt * report.prompts, completion)

    def _due(self, report: Report) -> int:
        """What the generation has cost by now, in tokens, and nobody has paid: every prompt that a model has read,
        however the answer ended, and what it wrote. All who read it are one tenant's, so whoever leaves pays."""
        ledger = self._ledger
        if not report.calls:
            return 0
        prompt = ledger.usage.prompt_tokens or prompt_tokens(self._asked.for_model())
        cost = prompt * report.prompts + max(ledger.tokens, ledger.usage.completion_tokens)
        due, report.paid = max(cost - report.paid, 0), max(cost, report.paid)
        return due

    def _lookup_request(self) -> cache_pb2.LookupRequest:
        policy = self._request.cache
        similarity = policy.min_similarity if policy.HasField("min_similarity") else None
        return cache_pb2.LookupRequest(question=self._question, min_similarity=similarity)

    def _store(self, final: pb.Final) -> None:
        """Have it stored, by the first of those who share it."""
        generation = self._generation
        if generation is None or generation.report.stored:
            return
        generation.report.stored = True
        answer = cache_pb2.Answer(
            text=final.text, model=final.model, finish_reason=final.finish_reason, usage=final.usage
        )
        request = cache_pb2.StoreRequest(question=self._question, answer=answer)
        self._backends.aftermath.store(self._question_key, request, generation.job.known)


def _question(request: pb.GenerateRequest, asked: Asked, tenant: str) -> cache_pb2.Question:
    named = f"model:{request.model}" if request.model else ""
    return cache_pb2.Question(
        tenant=tenant,
        model_class=named or f"tier:{pb.Tier.Name(request.tier).removeprefix('TIER_').lower()}",
        messages=asked.messages,
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
        attachments=asked.attachments(),
    )


def _digest(question: cache_pb2.Question) -> bytes:
    """What stands for a question in this gateway's memory: what it says may be long."""
    return hashlib.sha256(question.SerializeToString(deterministic=True)).digest()


def _is_storable(final: pb.Final) -> bool:
    """Only what is new, complete and undegraded is kept. That shared state was away says nothing of the text."""
    fresh = final.cache.verdict in (pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_UNAVAILABLE)
    whole = final.finish_reason in WHOLE and all(label.endswith(_LOCAL) for label in final.degraded)
    return fresh and whole and bool(final.text.strip())


def prompt_tokens(messages: Iterable[chat_pb2.Message]) -> int:
    """An estimate."""
    return sum(len(message.content.encode()) for message in messages) // _BYTES_PER_TOKEN


def _demand(request: pb.GenerateRequest, asked: Asked, budget_ms: float) -> Demand:
    return Demand(
        tier=Tier(request.tier),
        question=asked.messages[-1].content,
        budget_ms=budget_ms,
        prompt_tokens=prompt_tokens(asked.messages),
        max_tokens=request.sampling.max_tokens,
        max_cost_usd=request.max_cost_usd if request.HasField("max_cost_usd") else None,
    )
