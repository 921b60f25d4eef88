"""Lets a call wait for a model that is starting, or whose connection is lost.

This is gRPC's `wait_for_ready` (https://grpc.io/docs/guides/wait-for-ready/), once for all models and replicas of a
call, and with three limits that gRPC leaves to the caller: the time to the first text, the bytes of waiting calls, and
the rate at which they continue.

Only a call that has reached no model waits. A call whose connection was lost after a model received it fails at once:
its caller knows within milliseconds, and decides whether to send the request again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

from prometheus_client import Histogram

from services.gateway.generation.call import Call
from services.gateway.generation.job import Generate, Job
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet, Pool
from services.runtime import telemetry
from services.runtime.deadline import set_within
from services.runtime.errors import Exhausted, Unavailable
from services.runtime.policy.fair_slots import FairTurns
from services.runtime.policy.waiting_bytes import WaitingBytes

_POLL_S = 0.05  # between two attempts, if health says SERVING but the service refuses calls
_ROOM_POLL_S = 0.01  # between two checks of the limiter, by one waiting call for each model
_KEPT_S, _KEPT_SHARE = 0.05, 0.05  # of the time left, to report that no model has come
_WAITING_BYTES, _CALL_BYTES = 64 * 1024 * 1024, 64 * 1024  # of the calls that wait: 1,024 with short prompts
_WAITED_S = 0.001  # shorter waits are not reported
_SECONDS = Histogram(
    "hedgerow_start_wait_seconds",
    "Wait of calls for a model that was starting or had lost its connection.",
    ["model"],
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, *telemetry.LONG_S),
)


class StartWait:
    """Waits if no model of a job may be called now and one is expected to return: until the time limit of the first
    text. Then the call fails as UNAVAILABLE.

    It is outside of the limiter: a waiting call has no slot at a model. When the model is there, calls continue one
    after the other, tenants in turn, each when the limiter has a slot for it: all at once would be shed.
    """

    def __init__(self, fleet: Fleet, inner: Generate[Job]):
        self._fleet, self._inner = fleet, inner
        self._held = WaitingBytes(_WAITING_BYTES, held="calls that wait for a model")
        self._turns = defaultdict[str, FairTurns](FairTurns)

    async def __call__(self, job: Job) -> Call:
        while True:
            if self._is_expected(job):
                await self._wait(job)
            try:
                return await self._inner(job)
            except Unavailable:
                if job.report.has_reached_model or not self._is_expected(job):
                    raise
            await asyncio.sleep(_POLL_S)

    def _is_expected(self, job: Job) -> bool:
        """Whether the job waits: none of its models may be called now, and at least one is expected to return."""
        if not job.waits_for_model:
            return False
        pools = self._pools(job)
        return all(pool.is_open(job.slot_request.tenant) for pool in pools) and any(pool.starting for pool in pools)

    def _pools(self, job: Job) -> list[Pool]:
        """The pools of the job's models. The router's table may name models that this gateway does not have."""
        return [self._fleet.pools[model] for model in job.models if model in self._fleet.pools]

    async def _wait(self, job: Job) -> None:
        """Return when a model may be called, or none is expected to return. Raises `Unavailable` at the deadline."""
        began, left_s = job.deadline.clock(), job.deadline.remaining()
        pool = next(pool for pool in self._pools(job) if pool.starting)
        to = "come back" if pool.lost else "start"
        until = min(began + left_s - min(_KEPT_S, left_s * _KEPT_SHARE), job.first_text.at)
        came = False
        try:
            with self._held.hold(job.slot_request.tenant, _CALL_BYTES + job.request.ByteSize()):
                await self._come(job, pool, until)
                await self._turn(job, until)
            came = True
        except Exhausted:  # too many calls wait
            raise pool.refusal(job.slot_request.tenant) from None
        finally:
            _note(job, pool.model, job.deadline.clock() - began, to if came else f"{to}, in vain")

    async def _come(self, job: Job, pool: Pool, until: float) -> None:
        """Return when a model may be called, or none is expected to return. `pool` is one that is."""
        pools, tenant = self._pools(job), job.slot_request.tenant
        with self._fleet.notice.listening() as changed:
            while self._is_expected(job):
                refusal, left_s = pool.refusal(tenant), until - job.deadline.clock()
                job.report.waited = refusal.message
                if left_s <= 0:
                    raise refusal
                await set_within(changed, min(left_s, *(pool.admits_in_s(tenant) for pool in pools)))
                changed.clear()

    async def _turn(self, job: Job, until: float) -> None:
        """Return when the call's turn has come and the model has a slot for it, at `until` at the latest."""
        pool = next((pool for pool in self._pools(job) if not pool.is_open(job.slot_request.tenant)), None)
        if pool is None:
            return
        turns = self._turns[pool.model]
        try:
            async with asyncio.timeout(until - job.deadline.clock()):
                await turns.begin(job.slot_request.tenant, job.slot_request.weight)
        except TimeoutError:
            return
        try:
            while not pool.limiter.has_slot(job.slot_request) and job.deadline.clock() < until:  # noqa: ASYNC110
                await asyncio.sleep(_ROOM_POLL_S)
        finally:
            turns.ended()


def _note(job: Job, model: str, waited_s: float, to: str) -> None:
    """Record the wait: in the report, in the trace and as a metric."""
    _SECONDS.labels(model).observe(waited_s)
    if waited_s >= _WAITED_S:
        waited = f"{waited_s * 1000:.0f} ms for the model to {to}"
        job.report.waited = f"{model}: {waited}"
        job.report.decisions.add(Act.START_WAITED, model, waited)
