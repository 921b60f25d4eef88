"""Revalidation: a new answer for a stale cache hit, generated in the background.

No client waits for it. It counts against the quota of the tenant that asked, and has the priority of a batch item: last
in the queue, one attempt, never hedged. Under pressure, over a quota or with several under way it is given up, and the
next stale hit tries again. The cache is asked first, because another gateway may have stored the answer meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from opentelemetry.trace import Span
from prometheus_client import Counter

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.answer.metrics import VERDICTS
from services.runtime import telemetry
from services.runtime.errors import ServiceError
from services.runtime.policy.fair_slots import leaves_room

_AT_ONCE = 8  # in each worker; a tenant may have as many as are free, so one alone has half
_OF_THE_CALL = ("idempotency_key", "events_seen", "heartbeat_ms", "realtime", "budget_ms", "first_token_budget_ms")
_REVALIDATED = Counter("hedgerow_cache_revalidated", "Revalidations of stale hits, by outcome.", ["outcome"])
_log = logging.getLogger(__name__)
Give = Callable[[Question, Tenant, Span], Awaitable[pb.Final]]


class Revalidation:
    """`give` makes an answer as an item of a batch, or raises. `close` cancels the revalidations under way; further
    ones are dropped."""

    def __init__(self, give: Give):
        self._give, self._at_once = give, _AT_ONCE
        self._under_way: dict[tuple[str, bytes], asyncio.Task[None]] = {}

    def submit(self, question: Question, tenant: Tenant, key: bytes) -> None:
        """Answer a question again, unless that is under way. `key`: that of equal questions."""
        place = tenant.name, key
        if place in self._under_way:
            return
        if not leaves_room([name for name, _ in self._under_way], tenant.name, self._at_once):
            _REVALIDATED.labels("dropped").inc()
            return
        self._under_way[place] = task = asyncio.create_task(self._answer(_background_question(question), tenant))
        task.add_done_callback(lambda _: self._under_way.pop(place, None))

    def close(self) -> None:
        self._at_once = 0
        for task in self._under_way.values():
            task.cancel()

    async def _answer(self, question: Question, tenant: Tenant) -> None:
        outcome = "failed"
        try:
            with telemetry.internal_span("revalidate") as span:
                outcome = _outcome(await self._give(question, tenant, span))
        except ServiceError as error:
            _log.info("not revalidated: %s", error.outline)
        finally:
            _REVALIDATED.labels(outcome).inc()


def _outcome(final: pb.Final) -> str:
    """`exact` where another gateway has stored it, `miss` where it was generated here."""
    return "degraded" if final.degraded else VERDICTS[final.cache.verdict] if final.text else "failed"


def _background_question(question: Question) -> Question:
    """The question with the lowest priority, and without the options of its call; the same for the cache."""
    request = pb.GenerateRequest()
    request.CopyFrom(question.request)
    for name in _OF_THE_CALL:
        request.ClearField(name)
    request.single_attempt, request.attempt = True, 1
    request.cache.min_similarity = 1  # nothing that is merely alike takes its place
    request.cache.hit_chars_per_s = 0
    return replace(question, request=request)
