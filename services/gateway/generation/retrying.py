"""Another call where the first call failed before its first text, within a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Job
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet, Pool, Replica
from services.runtime.errors import ServiceError, TooLate

RETRIES = 2  # of one model: a replica, and one that may have died with it


class Retrying:
    """Of the calls to one model: what was refused before it was sent, or sent twice already, is not sent again."""

    def __init__(self, fleet: Fleet, inner: Generate[Attempt]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, job: Job) -> Call:
        pool, attempt, pause_s = self._fleet.pools[job.model], Attempt(job), None
        while True:
            try:
                if pause_s is not None:
                    await asyncio.sleep(pause_s)
                return await self._inner(attempt)
            except ServiceError as error:
                problem = error
            finally:
                if attempt.number > 1 and not attempt.calls:
                    self._fleet.retry.refund()
            if job.once or len(attempt.calls) != 1:
                raise problem
            failed = (*attempt.failed, attempt.calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            job.report.decisions.add(Act.RETRY_STARTED, pool.model, problem.outline)
            attempt = Attempt(job, failed=failed)

    def _pause_s(self, job: Job, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """How long to wait before another call, None: there is none. One that was silent is not asked again itself."""
        if len(failed) > 1 and (len(failed) > RETRIES or not pool.has_others(failed)):
            return None
        silent = isinstance(problem, TooLate)
        if pool.is_open(job.ticket.tenant, failed if silent else ()):
            return None
        if not silent:
            return self._fleet.retry.pause_s(problem, job.deadline.remaining())
        return 0.0 if not job.deadline.is_over() and self._fleet.retry.spend() else None
