"""Requests by gRPC on their way in: a call is refused by its headers where its tenant is over its quota, its message is
read where there is room for it beside all others, and its elements are counted before it becomes objects."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from opentelemetry.trace import Span

from services.gateway.admission.credential import Credential
from services.gateway.admission.identity import Tenant
from services.gateway.admission.intake import Intake
from services.gateway.admission.quota import CONVERSATION, NO_CLAIM, Claim
from services.gateway.api.idempotency import IdempotencyStore
from services.gateway.config import GatewaySettings
from services.runtime import telemetry
from services.runtime.limits import PARTS, TOOL_CALLS, TOOLS
from services.runtime.policy.waiting_bytes import Held
from services.runtime.rpc.arrival import Read, Reading
from services.runtime.rpc.wire import Counted

_REQUESTS = frozenset({"Generate", "ReportWrong"})  # of the tenant's quota; other calls have rules of their own


class Arrivals:
    """The requests of `hedgerow.gateway.v1.GatewayService` before their admission."""

    def __init__(self, settings: GatewaySettings, intake: Intake, kept: IdempotencyStore):
        self._settings, self._intake, self._kept = settings, intake, kept
        self._counted: dict[str, Counted] = {}  # by method

    def of(self, method: MethodDescriptor, credential: Credential, span: Span) -> CallArrival:
        """The request of one call."""
        tenant, name = credential.tenant, method.name
        counted = self._counted.get(name) or self._counted.setdefault(name, self._limits(method))
        has_slot = self._kept.unread(tenant.name)  # whether it may be for an answer that has a slot already
        claim = (NO_CLAIM if has_slot else CONVERSATION) if name in _REQUESTS else None
        return CallArrival(self._intake, self._settings.max_message_bytes, counted, tenant, span, claim)

    def _limits(self, method: MethodDescriptor) -> Counted:
        settings, limits = self._settings, self._intake.limits
        own = {
            "hedgerow.gateway.v1.GenerateBatchRequest.requests": settings.max_batch,
            "hedgerow.gateway.v1.GenerateRequest.messages": settings.max_messages,
            "hedgerow.gateway.v1.GenerateRequest.images": settings.max_images,
            "hedgerow.gateway.v1.GenerateRequest.tools": TOOLS,
            "hedgerow.chat.v1.Message.parts": PARTS,
            "hedgerow.chat.v1.Message.tool_calls": TOOL_CALLS,
        }

        def most(field: FieldDescriptor) -> int:
            return own.get(field.full_name, limits.items)

        return Counted(method.input_type, most, limits.items, limits.fields)


@dataclass(slots=True)
class CallArrival:
    """The request of one call of `tenant`, which has a `claim` while it is read."""

    _intake: Intake
    _most_bytes: int
    _counted: Counted
    _tenant: Tenant
    _span: Span
    _claim: Claim | None
    _held: Held | None = None

    async def one(self, read: Read) -> bytes:
        """The single message of a call, within the limits of length and of elements, in the tenant's turn. Raises
        `QuotaExceeded`, `BodiesWaiting` and `InvalidInput`."""
        await self._intake.starts.turn(self._tenant.name)
        with self._intake.reading(self._tenant, telemetry.trace_id(self._span), self._claim) as self._held:
            raw = await Reading(self._held, self._most_bytes).message(read)
        await self._counted.check(raw, self._tenant.name)
        return raw

    async def all(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The messages of a call with a stream of requests; only the first one's bytes are held."""
        try:
            first = await self.one(partial(anext, messages))
        except StopAsyncIteration:
            return
        yield first
        async for raw in messages:
            await self._counted.check(raw, self._tenant.name)
            yield raw

    def admitted(self) -> None:
        """Hold none of its bytes any more."""
        if self._held:
            self._held.give_back()
