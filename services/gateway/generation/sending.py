"""The replica that an attempt asks, and the call to it, until the deadline."""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.generation.call import Call, Kind, Observe
from services.gateway.generation.job import Generate, Granted, Sent
from services.gateway.labels import Act
from services.gateway.upstream import balance
from services.gateway.upstream.fleet import Fleet
from services.runtime.errors import ServiceError, Unavailable


class LoadBalancing:
    """Chooses the best available replica, by balancing policy, breakers and the prefix of the prompt. Raises
    `BreakerOpen`, or `Throttled`, where there is none, and `Unavailable` where the job has been billed."""

    def __init__(self, fleet: Fleet, inner: Generate[Sent]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, granted: Granted) -> Call:
        attempt, job = granted.attempt, granted.attempt.job
        if job.report.billed:  # the last reader has left in this turn of the event loop, and would not be charged
            raise Unavailable("cancelled: the last reader has left")
        pool = self._fleet.pools[job.model]
        tenant = job.slot_request.tenant
        prompt = balance.blocks_of(job.request) if pool.reads_prompts else ()
        picked = pool.pick(attempt.excluded or pool.elsewhere(attempt.failed), prompt, tenant)
        if picked is None and not attempt.excluded:
            picked = pool.pick((), prompt, tenant)
        if picked is None:
            raise pool.refusal(tenant)
        replica, permit = picked
        if known := replica.prefixes.matched(prompt):
            job.report.decisions.add(
                Act.PREFIX_MATCHED, replica, f"{known} of {len(prompt)} blocks in the replica's prefix cache"
            )
        return await self._inner(Sent(granted, pool, replica, permit, prompt))


_STARTED: Mapping[Kind, Act] = {"hedge": Act.HEDGE_STARTED, "failover": Act.FAILOVER_STARTED}


class Send:
    """Calls the replica, and returns when its first text is there. `observe` gets the outcome of the call. In
    mid-answer a replica may be silent for `stall_s` seconds at most."""

    def __init__(self, observe: Observe, stall_s: float):
        self._observe, self._stall_s = observe, stall_s

    async def __call__(self, sent: Sent) -> Call:
        attempt, pool, replica = sent.granted.attempt, sent.pool, sent.replica
        report = attempt.job.report
        attempt.call = call = _begun(sent, self._observe, self._stall_s)
        report.calls.append(call)
        balance.taken(replica, sent.prompt)
        if fault := pool.drill.fault(pool.rng):
            report.decisions.add(Act.DRILL_ABORTED if fault.code else Act.DRILL_DELAYED, replica, fault.words())
        if act := Act.RETRY_STARTED if attempt.kind == "first" and attempt.failed else _STARTED.get(attempt.kind):
            report.decisions.add(act, replica, attempt.reason)
        try:
            await call.begin(fault)
        except ServiceError as problem:
            call.failed(problem)
            raise
        except BaseException:  # cancelled, or a bug: no sample of the replica. A call that lost a race has ended before
            call.cancel()
            raise
        return call


def _begun(sent: Sent, observe: Observe, stall_s: float) -> Call:
    """The call, which owns slot and permit from now on."""
    attempt, job = sent.granted.attempt, sent.granted.attempt.job
    try:
        return Call(
            job.request,
            job.deadline,
            job.metadata,
            pool=sent.pool,
            replica=sent.replica,
            permit=sent.permit,
            slot=sent.granted.slot,
            observe=observe,
            stall_s=stall_s,
            kind=attempt.kind,
            carried_tokens=attempt.carried_tokens,
        )
    except BaseException:
        sent.permit.withdrawn()
        sent.granted.slot.release(unused=True)
        raise
