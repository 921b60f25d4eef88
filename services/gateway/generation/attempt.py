"""The layers that one attempt passes: availability, a place at the limiter, the choice of a replica, and the call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from services.gateway.generation.call import Call, Kind, Observe
from services.gateway.generation.job import Attempt, Generate, Job, Placed, Sent
from services.gateway.labels import Act
from services.gateway.upstream import balance
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError, Starting, Unavailable

_WAITED_S = 0.001  # seconds: shorter waits are not reported
_STARTED: Mapping[Kind, Act] = {"hedge": Act.HEDGE_STARTED, "failover": Act.FAILOVER_STARTED}


class Availability:
    """Refuses a call before it waits for a place: to a model none of whose replicas may be called, or that a drill
    drops."""

    def __init__(self, fleet: Fleet, inner: Generate[Attempt]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        pool, decisions = self._fleet.pools[job.model], job.report.decisions
        if pool.is_open(job.slot_request.tenant):
            refusal = pool.refusal(job.slot_request.tenant)
            if not isinstance(refusal, Starting):
                decisions.add(Act.BREAKER_REFUSED, pool.model, refusal.outline)
            raise refusal
        if pool.drop_share and pool.rng.random() < pool.drop_share:
            decisions.add(Act.DRILL_DROPPED, pool.model, f"a drill drops {pool.drop_share:.0%} of calls")
            raise Unavailable(f"{pool.model}: dropped by a drill")
        return await self._inner(attempt)


class Limiting:
    """Waits for the place, or sheds. A call that was sent releases its place when it ends."""

    def __init__(self, fleet: Fleet, inner: Generate[Placed]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        slot = await self._fleet.pools[job.model].limiter.enter(job.slot_request)
        try:
            if slot.waited_s > _WAITED_S:
                attempt.job = _after(job, slot.waited_s)
            return await self._inner(Placed(attempt, slot))
        except BaseException:
            slot.release(unused=True)
            raise


def _after(job: Job, waited_s: float) -> Job:
    """The job after its wait. For an item of a batch, the time to first text starts only now."""
    job.report.decisions.add(Act.LIMIT_WAITED, job.model, f"{waited_s * 1000:.0f} ms for a place")
    if not job.slot_request.on_batch_slot:
        return job
    return replace(job, first_text=Deadline(job.first_text.at + waited_s, job.first_text.clock))


class LoadBalancing:
    """Chooses the best available replica, by balancing policy, breakers and the prefix of the prompt. Raises
    `BreakerOpen`, or `Throttled`, where there is none."""

    def __init__(self, fleet: Fleet, inner: Generate[Sent]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, placed: Placed) -> Call:
        attempt, job = placed.attempt, placed.attempt.job
        pool = self._fleet.pools[job.model]
        tenant = job.slot_request.tenant
        prompt = balance.blocks_of(job.request) if pool.reads_prompts else ()
        picked = pool.pick(attempt.never or pool.elsewhere(attempt.failed), prompt, tenant)
        if picked is None and not attempt.never:
            picked = pool.pick((), prompt, tenant)
        if picked is None:
            raise pool.refusal(tenant)
        replica, permit = picked
        if known := replica.prefixes.matched(prompt):
            job.report.decisions.add(Act.PREFIX_MATCHED, replica, f"{known} of {len(prompt)} blocks")
        return await self._inner(Sent(placed, pool, replica, permit, prompt))


class Send:
    """Calls the replica, and returns when its first text is there. `observe` gets the outcome of the call. In
    mid-answer a replica may be silent for `stall_s` seconds at most."""

    def __init__(self, observe: Observe, stall_s: float):
        self._observe, self._stall_s = observe, stall_s

    async def __call__(self, sent: Sent) -> Call:
        attempt, pool, replica = sent.placed.attempt, sent.pool, sent.replica
        report = attempt.job.report
        attempt.call = call = _begun(sent, self._observe, self._stall_s)
        report.calls.append(call)
        balance.taken(replica, sent.prompt)
        if fault := pool.drill.fault(pool.rng):
            report.decisions.add(Act.DRILL_ABORTED if fault.code else Act.DRILL_DELAYED, replica, fault.words())
        if act := _STARTED.get(attempt.kind):
            report.decisions.add(act, replica, attempt.why)
        try:
            await call.begin(fault)
        except ServiceError as problem:
            call.failed(problem)
            raise
        except BaseException:  # cancelled, or a bug: no sample of the replica. A call that lost a race has ended before
            call.leave()
            raise
        return call


def _begun(sent: Sent, observe: Observe, stall_s: float) -> Call:
    """The call, which owns place and permit from now on."""
    attempt, job = sent.placed.attempt, sent.placed.attempt.job
    try:
        return Call(
            job.request,
            job.deadline,
            job.metadata,
            pool=sent.pool,
            replica=sent.replica,
            permit=sent.permit,
            slot=sent.placed.slot,
            observe=observe,
            stall_s=stall_s,
            kind=attempt.kind,
            carried_tokens=attempt.carried_tokens,
        )
    except BaseException:
        sent.permit.withdrawn()
        sent.placed.slot.release(unused=True)
        raise
