"""The contract of the gateway: admit, open the ledger, hand over."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing

from google.rpc import code_pb2
from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admit import check
from services.gateway.answer import Answer, Backends, Messages
from services.gateway.config import GatewaySettings
from services.gateway.door import Door
from services.gateway.errors import BudgetSpent
from services.gateway.identity import Identity, Tenant
from services.gateway.ledger import Ledger
from services.gateway.plan import make_plan, text_stages
from services.gateway.targets import Targets
from services.runtime import telemetry
from services.runtime.boundary import Call, header, to_status
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError


class GatewayServicer:
    """Serves `hedgerow.gateway.v1.GatewayService`."""

    def __init__(self, settings: GatewaySettings, backends: Backends, identity: Identity, door: Door):
        self._settings, self._backends = settings, backends
        self._identity, self._door, self._targets = identity, door, Targets(settings.targets)
        self._stages = {cached: text_stages(settings.stages, cached=cached) for cached in (True, False)}

    def authorize(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Raise `KeyUnknown` for a call, to whatever this process serves, without a key that is known."""
        self._identity.tenant(header(metadata, "authorization"))

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        tenant = self._identity.tenant(call.header("authorization"))
        async with aclosing(self._answer(request, tenant, call.deadline, call.span)) as messages:
            async for message in messages:
                yield message

    async def GenerateBatch(
        self, request: pb.GenerateBatchRequest, call: Call
    ) -> AsyncIterator[pb.GenerateBatchResponse]:
        tenant = self._identity.tenant(call.header("authorization"))
        if not 1 <= len(request.requests) <= self._settings.max_batch:
            raise InvalidInput("requests", f"1 to {self._settings.max_batch} requests", len(request.requests))
        tasks = [
            asyncio.create_task(self._item(index, item, tenant, call)) for index, item in enumerate(request.requests)
        ]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _item(
        self, index: int, request: pb.GenerateRequest, tenant: Tenant, call: Call
    ) -> pb.GenerateBatchResponse:
        final = pb.Final()
        try:
            async with aclosing(self._answer(request, tenant, call.deadline, call.span)) as messages:
                async for message in messages:
                    final = message.events[-1].final  # the last event of the last message
        except Exception as error:  # one item's failure does not end the others
            status = to_status(error)
            reason = error.reason if isinstance(error, ServiceError) else ServiceError.reason
            problem = pb.BatchError(code=code_pb2.Code.Name(status.code), reason=reason, message=status.message)
            return pb.GenerateBatchResponse(index=index, error=problem)
        return pb.GenerateBatchResponse(index=index, final=final)

    def _answer(self, request: pb.GenerateRequest, tenant: Tenant, deadline: Deadline, span: Span) -> Messages:
        check(request, self._settings)
        budget_ms = self._budget_ms(request, tenant, deadline)
        reservation = self._door.admit(request, tenant, telemetry.trace_id(span))
        cached = self._backends.cache is not None and not request.cache.bypass
        plan = make_plan(
            self._stages[cached],
            budget_ms,
            floor_share=self._settings.floor_share,
            first_text_ms=self._first_text_ms(request),
        )
        reserve_s = min(self._settings.finish_reserve_ms, budget_ms / 10) / 1000
        ledger = Ledger(plan, span, reserve_s, self._targets)
        return Answer(request, tenant, reservation, ledger, self._backends).messages()

    def _budget_ms(self, request: pb.GenerateRequest, tenant: Tenant, deadline: Deadline) -> float:
        """The smallest of the request's budget, the tenant's cap, the most there is, and the call's own deadline."""
        asked = request.budget_ms if request.HasField("budget_ms") else self._settings.default_budget_ms
        left = deadline.remaining() * 1000
        if math.isfinite(left):
            left -= self._settings.finish_reserve_ms  # the last event has a way to go
        if left <= 0:
            raise BudgetSpent(f"deadline: {self._settings.finish_reserve_ms:.0f} ms or more, got less")
        return min(asked, tenant.max_budget_ms or asked, self._settings.max_budget_ms, left)

    def _first_text_ms(self, request: pb.GenerateRequest) -> float:
        given = request.HasField("first_token_budget_ms")
        limit = request.first_token_budget_ms if given else self._settings.first_token_budget_ms
        return limit or math.inf
