"""What a request must pass before any work is done for it: load, then its tenant's quota.

Refusing costs microseconds and happens at once: the caller has its whole time left to go elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer import prompt_tokens
from services.gateway.config import ShedSettings
from services.gateway.decisions import Decisions
from services.gateway.identity import Tenant
from services.gateway.shared_quotas import SharedQuotas
from services.runtime.errors import Exhausted
from services.runtime.policy.gate import Shed
from services.runtime.policy.priority import score
from services.runtime.policy.quota import Quotas, Reservation

_ANSWER_TOKENS = 256  # reserved for an answer whose request names no limit


class Door:
    """`pressure` is the load of this process; 1 is all it can bear. `shared`: the quotas of all gateways together."""

    def __init__(self, shed: ShedSettings, pressure: Callable[[], float], shared: SharedQuotas | None = None):
        self._shed, self._pressure, self._shared = shed, pressure, shared
        self._quotas = shared.local if shared else Quotas(retry_after_s=shed.retry_after_ms / 1000)

    def asks(self, tenant: Tenant) -> bool:
        """Whether the other gateways have a say, so that it takes `admit_shared`."""
        return self._shared is not None and tenant.allowance.limited

    def admit(self, request: pb.GenerateRequest, tenant: Tenant, trace_id: str) -> Reservation:
        """The tenant's reservation, to be settled when the answer is done. Raises `Shed` or `QuotaExceeded`."""
        try:
            self._refuse_under_pressure(request, tenant)
            return self._quotas.reserve(tenant.name, tenant.allowance, _tokens(request))
        except Exhausted as refusal:
            _explain(refusal, tenant, trace_id)
            raise

    async def admit_shared(
        self, request: pb.GenerateRequest, tenant: Tenant, trace_id: str, within_s: float
    ) -> Reservation:
        """`admit` by all gateways together; by this one alone when that takes longer than `within_s`."""
        assert self._shared is not None  # as `asks` says
        try:
            self._refuse_under_pressure(request, tenant)
            return await self._shared.reserve(tenant.name, tenant.allowance, _tokens(request), within_s)
        except Exhausted as refusal:
            _explain(refusal, tenant, trace_id)
            raise

    def _refuse_under_pressure(self, request: pb.GenerateRequest, tenant: Tenant) -> None:
        rank = score(premium=tenant.premium, realtime=request.realtime, attempt=request.attempt)
        if rank < self._shed.score and (pressure := self._pressure()) >= self._shed.load:
            why = f"gateway: a pressure of {pressure:.2f}, score {rank} below {self._shed.score}"
            raise Shed(why, retry_delay_s=self._shed.retry_after_ms / 1000, why="pressure")


def _tokens(request: pb.GenerateRequest) -> int:
    """What the request may cost."""
    return prompt_tokens(request.messages) + (request.sampling.max_tokens or _ANSWER_TOKENS)


def _explain(refusal: Exhausted, tenant: Tenant, trace_id: str) -> None:
    """Have a refusal say what was decided."""
    decisions = Decisions()
    decisions.add("shed" if isinstance(refusal, Shed) else "quota", "refused", tenant.name, refusal.message)
    decisions.explain(refusal, time.monotonic(), trace_id)
