"""Another call to a model where the first one failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Generate, Job
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.replica import Replica
from services.runtime.errors import Misconfigured, ServiceError, TooLate

RETRIES = 2  # of one model: two replicas may have died together


class Retrying:
    """Retries a failed call to one model, within a budget. A call that was refused before it was sent, or was sent
    twice already, is not retried."""

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
            if job.single_attempt or len(attempt.calls) != 1:
                raise problem
            failed = (*attempt.failed, attempt.calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            attempt = Attempt(attempt.job, reason=problem.outline, failed=failed)

    def _pause_s(self, job: Job, pool: Pool, failed: Sequence[Replica], problem: ServiceError) -> float | None:
        """Seconds to wait before another call; None for no other call. A replica that was silent, or is set up
        wrongly, is not asked again."""
        if len(failed) > 1 and (len(failed) > RETRIES or not pool.has_others(failed)):
            return None
        elsewhere = isinstance(problem, TooLate | Misconfigured)
        if pool.is_open(job.slot_request.tenant, failed if elsewhere else ()):
            return None
        if not elsewhere:
            return self._fleet.retry.pause_s(problem, job.deadline.remaining())
        return 0.0 if not job.deadline.is_over() and self._fleet.retry.spend() else None
