"""The call itself."""

from __future__ import annotations

from collections.abc import Mapping

from services.gateway.generation.call import Call
from services.gateway.generation.job import Observe, Sent
from services.gateway.generation.stream import Kind
from services.gateway.labels import Act
from services.gateway.upstream import balance
from services.runtime.errors import ServiceError

_STARTED: Mapping[Kind, Act] = {"hedge": Act.HEDGE_STARTED, "failover": Act.FAILOVER_STARTED}


class Send:
    """Calls the replica, and returns when its first text is there. `observe` hears how the call went. In mid-answer
    nobody may be silent for longer than `stall_s`."""

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
        except BaseException:  # cancelled, or a bug: it says nothing of the replica. One that has lost has ended before
            call.leave()
            raise
        return call


def _begun(sent: Sent, observe: Observe, stall_s: float) -> Call:
    """The call, which has what it holds from now on."""
    try:
        return Call(sent, observe, stall_s)
    except BaseException:
        sent.permit.withdrawn()
        sent.placed.slot.release(unused=True)
        raise
