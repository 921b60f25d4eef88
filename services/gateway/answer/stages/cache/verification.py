"""Whether stored answers close to a question would be right for it. The cache draws the samples; a model judges each
one after the question has its own answer, and the cache is notified of the verdict.

No caller waits for a verdict. A judgement runs with the priority of a batch, in one attempt, within a bounded time and
number. No tenant pays for it, the metrics count it, and its text is not kept. A sample without a free slot is dropped:
the cache draws another. Only a clear yes or no is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from opentelemetry.trace import Span, SpanKind
from prometheus_client import Counter

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import prompt_tokens
from services.gateway.answer.background_call import ask, to_judge, verdict
from services.gateway.generation.shared import Shared
from services.gateway.settings.generation import JudgeSettings
from services.gateway.upstream.cache import Cache
from services.gateway.upstream.calls import whose
from services.gateway.upstream.router import Routes
from services.runtime import telemetry
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_slots import leaves_room
from services.runtime.routing import Demand, Tier

_REPORT_S = 2.0
_JUDGED_TOKENS = 4
_JUDGED = Counter("hedgerow_cache_judged", "Judged stored answers, by outcome.", ["outcome"])


class CacheVerification:
    """Samples to verify are given to `submit`. `close` cancels those under way."""

    def __init__(self, settings: JudgeSettings, models: Shared, routes: Routes, cache: Cache):
        self._settings, self._models, self._routes, self._cache = settings, models, routes, cache
        self._judging: dict[asyncio.Task[None], str] = {}  # and whose sample it judges

    def submit(
        self, sample: cache_pb2.Sample, conversation: Sequence[chat_pb2.Message], tenant: Tenant, above: Span
    ) -> None:
        """Verify a sample as the answer to a conversation. `above`: the span of the request that it came with."""
        messages = list(to_judge(conversation, sample.answer.text))
        model = self._model(messages)
        if not model or not leaves_room(self._judging.values(), tenant.name, self._settings.at_once):
            _JUDGED.labels("dropped").inc()
            return
        span = telemetry.start_span("judge", SpanKind.INTERNAL, parent=above)
        work = self._judge(sample, messages, model, tenant, span)
        task = asyncio.create_task(work, context=telemetry.within(span))
        self._judging[task] = tenant.name
        task.add_done_callback(self._judging.pop)

    async def close(self) -> None:
        """Cancel the verifications under way."""
        judging = list(self._judging)
        for task in judging:
            task.cancel()
        if judging:
            await asyncio.wait(judging)

    def _model(self, messages: Sequence[chat_pb2.Message]) -> str:
        """The model that judges; empty where no model is better than those that may have written the answer."""
        if self._settings.model:
            return self._settings.model
        choice = self._routes.choose(Demand(Tier.QUALITY, "", self._settings.ms, prompt_tokens(messages)))
        return choice.model if choice and not choice.fallback else ""

    async def _judge(
        self,
        sample: cache_pb2.Sample,
        messages: Sequence[chat_pb2.Message],
        model: str,
        tenant: Tenant,
        span: Span,
    ) -> None:
        outcome = "failed"
        try:
            said = await ask(
                self._models,
                self._routes,
                tenant,
                model,
                messages,
                max_tokens=_JUDGED_TOKENS,
                within_s=self._settings.ms / 1000,
                metadata=telemetry.propagate(span),
            )
            right = verdict(said)
            if right is None:
                outcome = "unclear"
                return
            drawn = cache_pb2.Sample()
            drawn.CopyFrom(sample)
            drawn.ClearField("asked")
            drawn.ClearField("answer")
            report = cache_pb2.ReportVerdictRequest(tenant=tenant.name, sample=drawn, right=right)
            await self._cache.report(report, _REPORT_S, (*telemetry.propagate(span), whose(tenant.name)))
            outcome = "right" if right else "wrong"
        except ServiceError as problem:
            span.set_attribute("hedgerow.judge.problem", problem.outline)
        finally:
            span.set_attribute("hedgerow.judge.outcome", outcome)
            span.end()
            _JUDGED.labels(outcome).inc()
