"""The contract of the gateway: admit, open the ledger, hand over."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from functools import cache, partial

from google.rpc import code_pb2
from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admit import check, check_conversation
from services.gateway.answer import Answer, Backends, Messages
from services.gateway.config import GatewaySettings
from services.gateway.converse import Conversation
from services.gateway.door import Door
from services.gateway.errors import BudgetSpent
from services.gateway.identity import Identity, Tenant
from services.gateway.ledger import Ledger
from services.gateway.plan import answer_stages, make_plan
from services.gateway.senses import recording_is
from services.gateway.targets import Targets
from services.runtime import telemetry
from services.runtime.boundary import Call, header, to_status
from services.runtime.callers import EDGE, TENANT_HEADER
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, ServiceError, TooLate

_OPENING_S = 10.0  # for a conversation's first message
_QUOTA_SHARE = 0.2  # of a budget, that the gateways' common quotas may take at most


class GatewayServicer:
    """Serves `hedgerow.gateway.v1.GatewayService`."""

    def __init__(self, settings: GatewaySettings, backends: Backends, identity: Identity, door: Door):
        self._settings, self._backends = settings, backends
        self._identity, self._door, self._targets = identity, door, Targets(settings.targets)
        self._conversations: set[Conversation] = set()
        self._stages = cache(partial(answer_stages, settings.stages))

    def authorize(self, metadata: Iterable[tuple[str, str | bytes]], caller: str) -> Tenant:
        """The tenant of a call, to whatever this process serves. Raises `KeyUnknown` or `CredentialsDiffer`.

        A tenant's name in the metadata is believed of `caller`, an identity, only where that is the edge.
        """
        named = [value for key, value in metadata if key == TENANT_HEADER] if caller == EDGE else []
        return self._identity.tenant(header(metadata, "authorization"), named)

    async def Generate(self, request: pb.GenerateRequest, call: Call) -> AsyncIterator[pb.GenerateResponse]:
        tenant = self.authorize(call.metadata, call.peer)
        async with aclosing(await self._answer(request, tenant, call.deadline, call.span)) as messages:
            async for message in messages:
                yield message

    async def GenerateBatch(
        self, request: pb.GenerateBatchRequest, call: Call
    ) -> AsyncIterator[pb.GenerateBatchResponse]:
        tenant = self.authorize(call.metadata, call.peer)
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

    async def Converse(
        self, requests: AsyncIterator[pb.ConverseRequest], call: Call
    ) -> AsyncIterator[pb.ConverseResponse]:
        tenant = self.authorize(call.metadata, call.peer)
        first = await _opening(requests)
        if not first.HasField("options"):
            raise InvalidInput("options", "required in the first message", first.WhichOneof("kind") or "nothing")
        check_conversation(first.options, self._settings)
        senses = self._backends.senses
        assert senses is not None  # as it is checked
        assert senses.audio is not None
        if not senses.audio_breaker.would_admit():
            raise senses.audio_breaker.refusal()

        def answer(request: pb.GenerateRequest) -> Messages:
            return self._turn(request, tenant, call.deadline)

        conversation = Conversation(first.options, answer, _tell, self._settings.conversation_turns)
        remaining = call.deadline.remaining()
        timeout_s = remaining if math.isfinite(remaining) else None
        self._conversations.add(conversation)
        try:
            responses = conversation.responses(requests, senses.audio, timeout_s, telemetry.propagate(call.span))
            async with aclosing(responses):
                async for response in responses:
                    yield response
        finally:
            self._conversations.discard(conversation)

    def drain(self) -> None:
        """End the conversations, which would never end by themselves."""
        for conversation in self._conversations:
            conversation.close()

    async def _turn(self, request: pb.GenerateRequest, tenant: Tenant, deadline: Deadline) -> Messages:
        """One turn's answer, in a span of its own."""
        with telemetry.internal_span("turn") as span:
            async with aclosing(await self._answer(request, tenant, deadline, span)) as messages:
                async for message in messages:
                    yield message

    async def _item(
        self, index: int, request: pb.GenerateRequest, tenant: Tenant, call: Call
    ) -> pb.GenerateBatchResponse:
        final = pb.Final()
        try:
            async with aclosing(await self._answer(request, tenant, call.deadline, call.span)) as messages:
                async for message in messages:
                    final = message.events[-1].final  # the last event of the last message
        except Exception as error:  # one item's failure does not end the others
            return pb.GenerateBatchResponse(index=index, error=_tell(error))
        return pb.GenerateBatchResponse(index=index, final=final)

    async def _answer(self, request: pb.GenerateRequest, tenant: Tenant, deadline: Deadline, span: Span) -> Messages:
        check(request, self._settings)
        budget_ms = self._budget_ms(request, tenant, deadline)
        opened, trace_id = time.monotonic(), telemetry.trace_id(span)
        if self._door.asks(tenant):
            reservation = await self._door.admit_shared(request, tenant, trace_id, budget_ms / 1000 * _QUOTA_SHARE)
        else:
            reservation = self._door.admit(request, tenant, trace_id)
        cached = self._backends.cache is not None and not request.cache.bypass
        plan = make_plan(
            self._stages(cached=cached, images=bool(request.images), audio=recording_is(request)),
            budget_ms,
            floor_share=self._settings.floor_share,
            first_text_ms=self._first_text_ms(request),
        )
        reserve_s = min(self._settings.finish_reserve_ms, budget_ms / 10) / 1000
        ledger = Ledger(plan, span, reserve_s, self._targets)
        ledger.opened = opened  # to be admitted is a part of the budget
        if reservation.local:
            ledger.degraded.append("quota:local")
            ledger.decide("quota", "local", tenant.name, reservation.local)
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


async def _opening(requests: AsyncIterator[pb.ConverseRequest]) -> pb.ConverseRequest:
    """The first message; an empty one where there is none."""
    try:
        async with asyncio.timeout(_OPENING_S):
            return await anext(requests, pb.ConverseRequest())
    except TimeoutError:
        raise TooLate(f"options: within {_OPENING_S:g} s, got nothing") from None


def _tell(error: Exception) -> pb.BatchError:
    """What a caller may know of an error that ends a part of a call."""
    status = to_status(error)
    reason = error.reason if isinstance(error, ServiceError) else ServiceError.reason
    return pb.BatchError(code=code_pb2.Code.Name(status.code), reason=reason, message=status.message)
