"""The call of an attempt to its replica, until the deadline."""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.generation.call import Call, Kind, Observe
from services.gateway.generation.job import Sent
from services.gateway.labels import Act
from services.gateway.upstream import balance
from services.runtime.errors import ServiceError

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
