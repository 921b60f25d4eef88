"""Another call where the first call failed before its first text, within a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from services.gateway.generation.job import Job
from services.gateway.generation.stream import Generate, TextStream
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet, Pool, Replica
from services.runtime.errors import ServiceError, TooLate

RETRIES = 2  # of one model: a replica, and one that may have died with it


class Retrying:
    """Of the calls to one model: what was refused before it was sent, or sent twice already, is not sent again."""

    def __init__(self, fleet: Fleet, inner: Generate[Job]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, job: Job) -> TextStream:
        pool, failed, pause_s = self._fleet.pools[job.model], list[Replica](), None
        while True:
            sent = len(job.report.calls)
            try:
                if pause_s is None:
                    return await self._inner(job)
                await asyncio.sleep(pause_s)
                return await self._inner(replace(job, failed=failed))
            except ServiceError as error:
                problem, calls = error, job.report.calls[sent:]
            finally:
                if pause_s is not None and len(job.report.calls) == sent:
                    self._fleet.retry.refund()
            if job.once or len(calls) != 1:
                raise problem
            failed.append(calls[0].replica)
            pause_s = self._pause_s(job, pool, failed, problem)
            if pause_s is None:
                raise problem
            job.report.decisions.add(Act.RETRY_STARTED, pool.model, problem.outline)

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
