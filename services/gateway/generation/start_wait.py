"""A call waits for a model that is starting, where no other model can answer now."""

from __future__ import annotations

import asyncio

from services.gateway.generation.call import Call
from services.gateway.generation.job import Job
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet, Pool
from services.runtime.deadline import set_within
from services.runtime.errors import Unavailable

_AGAIN_S = 0.05  # between two calls, where health and the service differ about whether it serves
_MOST = 1_000  # calls that wait; one more is refused at once
_KEPT_S, _KEPT_SHARE = 0.05, 0.05  # of the time that is left, to say that the model is still starting


class StartWait:
    """Waits for as long as the first text may take, and then says that the model is starting.

    Outside of the limiter: a call that waits for a start has no place at a model.
    """

    def __init__(self, fleet: Fleet, inner: Generate[Job]):
        self._fleet, self._inner, self._waiting = fleet, inner, 0

    async def __call__(self, job: Job) -> Call:
        while True:
            if self._is_starting(job):
                self._waiting += 1
                try:
                    await self._wait(job)
                finally:
                    self._waiting -= 1
            try:
                return await self._inner(job)
            except Unavailable:
                if not self._is_starting(job):
                    raise
            await asyncio.sleep(_AGAIN_S)

    def _is_starting(self, job: Job) -> bool:
        """Whether no model of the job may be called now, and one of them will be when it has started."""
        pools = self._pools(job)
        return all(pool.is_open(job.ticket.tenant) for pool in pools) and any(pool.starting for pool in pools)

    def _pools(self, job: Job) -> list[Pool]:
        """The router's table may name models that this gateway does not have."""
        return [self._fleet.pools[model] for model in job.models if model in self._fleet.pools]

    async def _wait(self, job: Job) -> None:
        """Return when a model may be called, or none is starting. Raises `Starting` when the time is over."""
        pools, began = self._pools(job), job.deadline.clock()
        model = next(pool for pool in pools if pool.starting)
        left_s = job.deadline.remaining()
        until = min(began + left_s - min(_KEPT_S, left_s * _KEPT_SHARE), job.first_text.at)
        with self._fleet.notice.listening() as changed:
            while self._is_starting(job):
                left_s = until - job.deadline.clock()
                job.report.waited = f"{model.model}: the model is starting"
                if left_s <= 0 or self._waiting > _MOST:
                    raise model.refusal(job.ticket.tenant)
                others_s = (pool.admits_in_s(job.ticket.tenant) for pool in pools)
                await set_within(changed, min(left_s, *others_s))
                changed.clear()
        waited = f"{(job.deadline.clock() - began) * 1000:.0f} ms for the model to start"
        job.report.waited = f"{model.model}: {waited}"
        job.report.decisions.add(Act.START_WAITED, model.model, waited)
