"""One answer, from an admitted request to its last event.

    cache ∥ router → llm

The lookup starts first, and the choice of a model is made while it is under way. Whatever fails behind it, an answer
ends with a `final` event by its budget, or, when there was no text to give, with an error that says what is broken.

Events gather in an outbox and leave it together: each message costs gateway and client about 0.1 ms, as much as all of
the code here.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from hedgerow.router.v1 import router_pb2
from services.gateway.aftermath import Aftermath
from services.gateway.backends import Cache, Generation, Llm
from services.gateway.errors import ModelUnavailable
from services.gateway.ledger import Ledger, Running
from services.gateway.near import NearCache
from services.gateway.routes import Routes
from services.runtime import telemetry
from services.runtime.errors import Exhausted, ServiceError, TooLate, Unavailable
from services.runtime.routing import Choice, Complexity, Demand, Tier

_COMPANY_S = 0.002  # how long the plan waits for a first token to travel with
_ATTEMPTS = 2  # models tried before the first text
_BYTES_PER_TOKEN = 4  # of English text; the engine's own count is the truth
_STORABLE = (chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH)
_VERDICTS: Mapping[int, pb.CacheVerdict] = {
    cache_pb2.VERDICT_MISS: pb.CACHE_VERDICT_MISS,
    cache_pb2.VERDICT_EXACT: pb.CACHE_VERDICT_EXACT,
    cache_pb2.VERDICT_SEMANTIC: pb.CACHE_VERDICT_SEMANTIC,
}
Messages = AsyncGenerator[pb.GenerateResponse, None]


@dataclass(frozen=True, slots=True)
class Backends:
    """What answers are made from. `llms` are by model name; the first stands in while there is no table."""

    cache: Cache | None
    llms: Mapping[str, Llm]
    routes: Routes
    near: NearCache
    aftermath: Aftermath


class Answer:
    """An answer in the making. `messages` may be iterated once; closing it cancels whatever is under way."""

    def __init__(self, request: pb.GenerateRequest, tenant: str, ledger: Ledger, backends: Backends):
        self._request, self._tenant, self._ledger, self._backends = request, tenant, ledger, backends
        self._outbox: list[pb.Event] = []
        self._announced = False
        self._choice: Choice | None = None
        self._question = cache_pb2.Question()
        self._question_key = b""

    async def messages(self) -> Messages:
        cache = None if self._request.cache.bypass else self._backends.cache
        if cache is None:
            self._ledger.cache.verdict = pb.CACHE_VERDICT_BYPASS
        else:
            async with aclosing(self._from_cache(cache)) as messages:
                async for message in messages:
                    yield message
        if not self._ledger.text:
            async with aclosing(self._from_model()) as messages:
                async for message in messages:
                    yield message
        final = self._ledger.close()
        self._outbox.append(pb.Event(final=final))
        try:
            yield self._flush()
        finally:
            self._ledger.publish()
            if cache is not None and _is_storable(final):
                self._store(final)

    def _flush(self) -> pb.GenerateResponse:
        if not self._announced:
            self._announced = True
            self._outbox.insert(0, pb.Event(accepted=self._ledger.accepted()))
        message = pb.GenerateResponse(events=self._outbox)
        self._outbox.clear()
        return message

    async def _from_cache(self, cache: Cache) -> Messages:
        self._question = _question(self._request, self._tenant)
        self._question_key = self._question.SerializeToString(deterministic=True)
        with self._ledger.stage("cache") as stage:
            if self._take_near(stage):
                return
            lookup = cache.lookup(self._lookup_request(), stage.budget_s, telemetry.propagate(stage.span))
            try:
                self._choice = self._route()
                yield self._flush()
                self._take_verdict(await lookup.reply(), stage)
            except ServiceError as error:
                late = isinstance(error, TooLate)
                stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
                stage.detail = error.message
                self._ledger.cache.verdict = pb.CACHE_VERDICT_UNAVAILABLE
            finally:
                lookup.cancel()

    def _take_near(self, stage: Running) -> bool:
        """Whether this gateway has the answer itself."""
        copy, pending = self._backends.near.get(self._question_key), None
        if copy is not None:
            self._take(copy.answer, pb.CACHE_VERDICT_EXACT, copy.key, 1.0)
            stage.detail = "exact, kept in the gateway"
        elif pending := self._backends.aftermath.pending(self._question_key):
            self._take(pending, pb.CACHE_VERDICT_EXACT, "", 1.0)
            stage.detail = "exact, on its way to the cache"
        return bool(copy or pending)

    def _take_verdict(self, found: cache_pb2.LookupResponse, stage: Running) -> None:
        verdict = _VERDICTS.get(found.verdict, pb.CACHE_VERDICT_MISS)
        similarity = found.similarity if found.HasField("similarity") else None
        stage.detail = cache_pb2.Verdict.Name(found.verdict).removeprefix("VERDICT_").lower()
        if similarity is not None and verdict != pb.CACHE_VERDICT_EXACT:
            stage.detail += f", nearest {similarity:.3f}{f' refused: {found.refused}' if found.refused else ''}"
        if verdict == pb.CACHE_VERDICT_MISS:
            self._ledger.cache = pb.CacheReport(verdict=verdict, similarity=similarity)
            return
        exact = verdict == pb.CACHE_VERDICT_EXACT
        self._take(found.answer, verdict, found.key, 1.0 if exact else similarity)
        if exact:
            self._backends.near.put(self._question_key, found.answer, found.key, self._tenant, found.ttl_ms)

    def _take(self, answer: cache_pb2.Answer, verdict: pb.CacheVerdict, key: str, similarity: float | None) -> None:
        ledger = self._ledger
        ledger.cache = pb.CacheReport(verdict=verdict, key=key, similarity=similarity)
        ledger.model, ledger.finish_reason = answer.model, answer.finish_reason
        ledger.add_text(answer.text)
        self._outbox.append(pb.Event(delta=pb.TextDelta(text=answer.text)))

    def _route(self) -> Choice:
        """Choose a model; microseconds, on the table the router pushed."""
        request, ledger = self._request, self._ledger
        with ledger.stage("router") as stage:
            if request.model:
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_SKIPPED, f"{request.model}: asked for by name"
                return Choice(request.model, (), Complexity.UNSPECIFIED, fallback=False, reason=stage.detail)
            choice = self._backends.routes.choose(_demand(request, ledger.plan["llm"].budget_ms))
            if choice is None:
                first, *others = self._backends.llms
                stage.outcome, stage.detail = pb.STAGE_OUTCOME_FAILED, f"no table yet: {first} stands in"
                ledger.degraded.append("router:unavailable")
                return Choice(first, tuple(others), Complexity.UNSPECIFIED, fallback=True, reason=stage.detail)
            away = "" if self._backends.routes.live else " (the router is away: its last table)"
            stage.detail = f"{choice.model}: {choice.reason}{away}"
            if choice.fallback:
                ledger.degraded.append("router:fallback")
            return choice

    async def _from_model(self) -> Messages:
        choice = self._choice or self._route()
        failures: list[str] = []
        with self._ledger.stage("llm") as stage:
            for model in (choice.model, *choice.alternatives)[:_ATTEMPTS]:
                attempt = _Attempt(model, self._ledger, stage, self._backends)
                generation = attempt.start(self._request)
                try:
                    if not self._announced and not await generation.begins(_COMPANY_S):
                        yield self._flush()
                    async for delta in attempt.relay(generation):
                        self._outbox.append(pb.Event(delta=delta))
                        if not attempt.done:
                            yield self._flush()
                finally:
                    generation.close()
                if attempt.failure is None:
                    break
                failures.append(attempt.failure.message)
            else:
                raise ModelUnavailable("; ".join(failures), retry_delay_s=1.0)
            if failures:
                stage.outcome = pb.STAGE_OUTCOME_REPLACED
                self._ledger.degraded.append("llm:replaced")
                stage.detail = "; ".join([*failures, stage.detail])

    def _lookup_request(self) -> cache_pb2.LookupRequest:
        policy = self._request.cache
        similarity = policy.min_similarity if policy.HasField("min_similarity") else None
        return cache_pb2.LookupRequest(question=self._question, min_similarity=similarity)

    def _store(self, final: pb.Final) -> None:
        answer = cache_pb2.Answer(
            text=final.text, model=final.model, finish_reason=final.finish_reason, usage=final.usage
        )
        request = cache_pb2.StoreRequest(question=self._question, answer=answer)
        self._backends.aftermath.store(self._question_key, request)


class _Attempt:
    """One model's try at the answer. `done` says that no more text comes; `failure` is set when it failed before any
    text, and another model may be tried."""

    def __init__(self, model: str, ledger: Ledger, stage: Running, backends: Backends):
        self._model, self._ledger, self._stage, self._backends = model, ledger, stage, backends
        self._started, self._tokens = time.monotonic(), 0
        self._first: float | None = None
        self.done = False
        self.failure: ServiceError | None = None

    def start(self, request: pb.GenerateRequest) -> Generation:
        question = llm_pb2.GenerateRequest(
            messages=request.messages,
            sampling=request.sampling if request.HasField("sampling") else None,
            response_format=request.response_format if request.HasField("response_format") else None,
        )
        timeout_s = min(self._stage.budget_s, self._ledger.remaining())
        metadata = telemetry.propagate(self._stage.span)
        return self._backends.llms[self._model].generate(question, timeout_s, metadata)

    async def relay(self, generation: Generation) -> AsyncGenerator[pb.TextDelta, None]:
        """The text as it comes; then the ledger knows how it ended."""
        self._ledger.model = self._model
        try:
            while messages := await generation.take():
                text = "".join(message.text for message in messages)
                tokens = sum(message.tokens for message in messages)
                self.done = messages[-1].HasField("finish")
                if self.done:
                    self._finish(messages[-1].finish)
                if text:
                    self._first = self._first or time.monotonic()
                    self._tokens += tokens
                    self._ledger.add_text(text)
                    yield pb.TextDelta(text=text, tokens=tokens)
                if self.done:
                    return
            raise Unavailable(f"{self._model}: ended without saying why")
        except TooLate:
            self._end(chat_pb2.FINISH_REASON_BUDGET, "llm:budget", "cut off at the budget")
        except (Unavailable, Exhausted) as error:
            if self._ledger.text:
                self._end(chat_pb2.FINISH_REASON_INTERRUPTED, "llm:interrupted", error.message)
            else:
                self.failure = error
                self._observe(router_pb2.OBSERVED_OUTCOME_FAILED)

    def _finish(self, finish: llm_pb2.Finish) -> None:
        self._ledger.usage = finish.usage
        if finish.reason not in _STORABLE:
            self._end(chat_pb2.FINISH_REASON_INTERRUPTED, "llm:interrupted", "the engine stopped")
            return
        self._ledger.finish_reason = finish.reason
        self._stage.detail = f"{self._model}: {finish.usage.completion_tokens} tokens"
        self._observe(router_pb2.OBSERVED_OUTCOME_OK)

    def _end(self, reason: chat_pb2.FinishReason, label: str, detail: str) -> None:
        """An end before the model's own."""
        self._ledger.finish_reason = reason
        self._ledger.degraded.append(label)
        self._ledger.usage.completion_tokens = max(self._ledger.usage.completion_tokens, self._tokens)
        late = reason == chat_pb2.FINISH_REASON_BUDGET
        self._stage.outcome = pb.STAGE_OUTCOME_OVERRUN if late else pb.STAGE_OUTCOME_FAILED
        self._stage.detail = f"{self._model}: {detail}"
        self._observe(router_pb2.OBSERVED_OUTCOME_BUDGET if late else router_pb2.OBSERVED_OUTCOME_FAILED)

    def _observe(self, outcome: router_pb2.ObservedOutcome) -> None:
        seen = router_pb2.Observation(
            model=self._model,
            ttft_ms=None if self._first is None else (self._first - self._started) * 1000,
            total_ms=(time.monotonic() - self._started) * 1000,
            completion_tokens=self._tokens,
            outcome=outcome,
        )
        self._backends.aftermath.observe(seen)


def _question(request: pb.GenerateRequest, tenant: str) -> cache_pb2.Question:
    named = f"model:{request.model}" if request.model else ""
    return cache_pb2.Question(
        tenant=tenant,
        model_class=named or f"tier:{pb.Tier.Name(request.tier).removeprefix('TIER_').lower()}",
        messages=request.messages,
        sampling=request.sampling if request.HasField("sampling") else None,
        response_format=request.response_format if request.HasField("response_format") else None,
    )


def _is_storable(final: pb.Final) -> bool:
    """Only what is new, complete and undegraded is kept."""
    fresh = final.cache.verdict in (pb.CACHE_VERDICT_MISS, pb.CACHE_VERDICT_UNAVAILABLE)
    whole = final.finish_reason in _STORABLE and not final.degraded
    return fresh and whole and bool(final.text.strip())


def _demand(request: pb.GenerateRequest, budget_ms: float) -> Demand:
    size = sum(len(message.content) for message in request.messages)
    return Demand(
        tier=Tier(request.tier),
        question=request.messages[-1].content,
        budget_ms=budget_ms,
        prompt_tokens=size // _BYTES_PER_TOKEN,
        max_tokens=request.sampling.max_tokens,
    )
