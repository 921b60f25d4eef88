"""The call itself."""

from __future__ import annotations

import asyncio
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
        placed, pool, replica = sent.placed, sent.pool, sent.replica
        decisions = placed.job.report.decisions
        call = _begun(sent, self._observe, self._stall_s)
        balance.taken(replica, sent.prompt)
        placed.job.report.calls.append(call)
        if fault := pool.drill.fault(pool.rng):
            decisions.add(Act.DRILL_ABORTED if fault.code else Act.DRILL_DELAYED, replica, fault.words())
        if act := _STARTED.get(placed.kind):
            decisions.add(act, replica, placed.why)
        try:
            await call.begin(fault)
        except asyncio.CancelledError:
            call.lose() if placed.race and placed.race.decided else call.leave()
            raise
        except ServiceError as problem:
            call.failed(problem)
            raise
        except BaseException:  # a bug, which says nothing of the replica
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
