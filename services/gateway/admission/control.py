"""Admission: load first, then the tenant's quota, before any work is done.

A refusal takes microseconds and comes at once, so that the caller has its whole time left to go elsewhere. Only items
of a batch wait, because no client waits for a single item.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

from prometheus_client import Counter, Gauge

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question, estimated_recording_tokens
from services.gateway.admission.quota import CONVERSATION, REQUEST, Claim, QuotaExceeded, Quotas, Reservation
from services.gateway.admission.shared_quotas import SharedQuotas
from services.gateway.decisions import decided
from services.gateway.labels import Act
from services.gateway.policies.slot import Shed, score
from services.gateway.policies.work_shares import WorkShares
from services.gateway.settings.permissions import choices
from services.gateway.settings.serving import ShedSettings
from services.runtime.aside import HUGE_BYTES
from services.runtime.deadline import Clock, Deadline
from services.runtime.errors import Exhausted

_EVERY_S = 0.1
_LEAST_CORES, _TIMES = 0.1, 4  # for a lag that other processes may cause
_SMOOTHING = 0.3  # about 0.7 s until 9 tenths of a change are seen

_LAG = Gauge("hedgerow_loop_lag_seconds", "Delay of the event loop's callbacks, smoothed.")
_CORES = Gauge("hedgerow_cpu_cores", "CPU seconds that this process uses in a second, smoothed.")
_ANSWER_TOKENS = 256  # reserved for an answer whose request names no limit
_LEAST_S = 0.01  # between two tries
_SHARED_SHARE = 0.2  # of the time there is, that the gateways' common quotas may take at most
# CPU time, as estimated: of a refused call, of an answer beside that, of a piece of one, of a byte that is read, and of
# a byte of a size as `aside` has it.
CALL_S, _ANSWER_S, PIECE_S, READ_S, SIZE_S = 0.0002, 0.0008, 0.0001, 1e-8, 0.01 / HUGE_BYTES
_REFUSED = Counter("hedgerow_quota_refused", "Requests over their tenant's quota.", ["tenant", "quota"])
_refused = cache(_REFUSED.labels)


class Pressure:
    """The process's load: 1 when its event loop runs `lag_limit_s` late while it uses `cpu_limit` cores or more."""

    def __init__(
        self,
        lag_limit_s: float,
        cpu_limit: float,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self._lag_limit_s, self._cpu_limit = lag_limit_s, cpu_limit
        self._clock, self._cpu_clock, self._sleep = clock, cpu_clock, sleep
        self._lag_s = self._cores = 0.0

    def value(self) -> float:
        """The smoothed lag over its limit; 0 while there is CPU left."""
        return self._lag_s / self._lag_limit_s if self._cores >= self._cpu_limit else 0.0

    def lag(self) -> float:
        """The lag over four times its limit, whatever CPU there is: on a machine that other processes keep busy, a
        process at its limit may have a fifth of a core. 0 while this one does next to nothing."""
        return self._lag_s / (_TIMES * self._lag_limit_s) if self._cores >= _LEAST_CORES else 0.0

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            began, cpu_began = self._clock(), self._cpu_clock()
            await self._sleep(_EVERY_S)
            took_s = self._clock() - began
            if took_s > 0:
                self._saw(max(took_s - _EVERY_S, 0.0), (self._cpu_clock() - cpu_began) / took_s)

    def _saw(self, lag_s: float, cores: float) -> None:
        self._lag_s += (lag_s - self._lag_s) * _SMOOTHING
        self._cores += (cores - self._cores) * _SMOOTHING
        _LAG.set(self._lag_s)
        _CORES.set(self._cores)


class AdmissionControl:
    """`work` says which tenants' calls are refused because of the load of this process. `shared`: the quotas of all
    gateways together."""

    def __init__(self, shed: ShedSettings, work: WorkShares, shared: SharedQuotas | None = None):
        self._shed, self._work, self._shared = shed, work, shared
        self._quotas = shared.local if shared else Quotas(retry_after_s=shed.retry_after_ms / 1000)

    async def admit(
        self,
        question: Question,
        tenant: Tenant,
        trace_id: str,
        budget_s: float,
        claim: Claim = REQUEST,
        answers: int = 1,
    ) -> Reservation:
        """The tenant's reservation, to be settled when the answer is done, or all `answers` to requests like this one.
        Raises `Shed` or `QuotaExceeded`."""
        try:
            return await self._admit(question, tenant, budget_s, claim, answers)
        except Exhausted as refusal:
            _explain(refusal, tenant, trace_id)
            raise

    async def admit_in_time(self, question: Question, tenant: Tenant, trace_id: str, deadline: Deadline) -> Reservation:
        """`admit` as soon as there is room, in the order of arrival; raises the last refusal at `deadline`."""
        while True:
            try:
                return await self._admit(question, tenant, deadline.remaining(), REQUEST)
            except Exhausted as refusal:
                delay_s = max(refusal.retry_delay_s or 0.0, _LEAST_S)
                await self._quotas.ended(tenant.name, min(delay_s, deadline.remaining()))
                if deadline.is_over():  # without a last try: there is no time for Redis to decide, nor for an answer
                    _explain(refusal, tenant, trace_id)
                    raise

    async def hold(
        self, tenant: Tenant, trace_id: str, within_s: float, claim: Claim = CONVERSATION, tokens: int = 0
    ) -> Reservation:
        """Reserve the slot of a conversation, or of another call that costs about `tokens`, to be settled at its end.
        Raises `QuotaExceeded`."""
        try:
            return await self._reserve(tenant, tokens, within_s, claim)
        except Exhausted as refusal:
            _explain(refusal, tenant, trace_id)
            raise

    def parses(self, tenant: Tenant, trace_id: str, size: int) -> None:
        """A body of JSON, of about `size` as for `aside`, is about to be parsed. Raises `Shed` for a huge one of a
        tenant that causes the pressure, whatever its priority, which is in the body: to parse it is most of its
        cost."""
        low = score(premium=tenant.premium, realtime=False, attempt=0) < self._shed.score
        if size > HUGE_BYTES and low and (why := self._work.refusal_unread(tenant.name)):
            refusal = self._shed_for(f"a large request, {why}")
            _explain(refusal, tenant, trace_id)
            raise refusal
        self.spend(tenant, size * SIZE_S)

    def spend(self, tenant: Tenant, seconds: float) -> None:
        """Calls of the tenant's have cost about so many seconds of CPU time."""
        self._work.spend(tenant.name, tenant.weight, seconds)

    def expect(self, tenant: Tenant, trace_id: str, claim: Claim) -> Reservation | None:
        """A `claim` of the tenant's while a request of its is read, to be settled before it is admitted; None where the
        tenant has no limits. Raises `QuotaExceeded` where it would be refused whatever it asks, as far as this process
        knows."""
        if not tenant.allowance.limited:
            return None
        try:
            return self._quotas.expect(tenant.name, tenant.allowance, claim)
        except Exhausted as refusal:
            _explain(refusal, tenant, trace_id)
            raise

    @asynccontextmanager
    async def holding(self, tenant: Tenant, trace_id: str, within_s: float) -> AsyncIterator[None]:
        """Hold a conversation's slot for as long as a stream is open. Raises `QuotaExceeded`."""
        reservation = await self.hold(tenant, trace_id, within_s)
        try:
            yield
        finally:
            reservation.settle(0)

    async def _admit(
        self, question: Question, tenant: Tenant, budget_s: float, claim: Claim, answers: int = 1
    ) -> Reservation:
        self._refuse_under_pressure(question.request, tenant)
        return await self._reserve(tenant, answers * _tokens(question), budget_s * _SHARED_SHARE, claim)

    async def _reserve(self, tenant: Tenant, tokens: int, within_s: float, claim: Claim) -> Reservation:
        """Reserve from the quota that all gateways share, if the tenant has limits; from this gateway's own if that
        takes longer."""
        if self._shared is not None and tenant.allowance.limited:
            return await self._shared.reserve(tenant.name, tenant.allowance, tokens, within_s, claim)
        return self._quotas.reserve(tenant.name, tenant.allowance, tokens, claim)

    def _refuse_under_pressure(self, request: pb.GenerateRequest, tenant: Tenant) -> None:
        self.spend(tenant, _ANSWER_S)
        rank = score(premium=tenant.premium, realtime=request.realtime, attempt=request.attempt)
        why = self._work.refusal(tenant.name)  # of every call: it notes since when there is pressure
        if why and rank < self._shed.score:
            raise self._shed_for(f"score {rank} below {self._shed.score}, {why}")

    def _shed_for(self, why: str) -> Shed:
        return Shed(f"gateway: {why}", retry_delay_s=self._shed.retry_after_ms / 1000, why="pressure")


def _tokens(question: Question) -> int:
    """The tokens that a request's answers may cost, its recording included."""
    request = question.request
    audio_tokens = estimated_recording_tokens(request.audio.data) if question.audio else 0
    return (
        audio_tokens
        + question.prompt_tokens
        + choices(request.original) * (request.sampling.max_tokens or _ANSWER_TOKENS)
    )


def _explain(refusal: Exhausted, tenant: Tenant, trace_id: str) -> None:
    """Have a refusal say what was decided."""
    if isinstance(refusal, QuotaExceeded):
        _refused(tenant.name, refusal.metadata["quota"]).inc()
    act = Act.SHED_REFUSED if isinstance(refusal, Shed) else Act.QUOTA_REFUSED
    refusal.metadata |= {"trace_id": trace_id, "decisions": decided(act, tenant.name, refusal.message)}
