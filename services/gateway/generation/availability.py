"""Refused before a call waits for a place: a model none of whose replicas may be called, or that a drill drops."""

from __future__ import annotations

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet
from services.runtime.errors import Starting, Unavailable


class Availability:
    """Asks whether a replica serves and its breaker is closed, and the drill."""

    def __init__(self, fleet: Fleet, inner: Generate[Attempt]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        pool, decisions = self._fleet.pools[job.model], job.report.decisions
        if pool.is_open(job.ticket.tenant):
            refusal = pool.refusal(job.ticket.tenant)
            if not isinstance(refusal, Starting):
                decisions.add(Act.BREAKER_REFUSED, pool.model, refusal.outline)
            raise refusal
        if pool.drop_share and pool.rng.random() < pool.drop_share:
            decisions.add(Act.DRILL_DROPPED, pool.model, f"a drill drops {pool.drop_share:.0%} of calls")
            raise Unavailable(f"{pool.model}: dropped by a drill")
        return await self._inner(attempt)
