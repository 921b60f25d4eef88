"""A place at the model's limiter, for one call."""

from __future__ import annotations

from dataclasses import replace

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Job, Placed
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet
from services.runtime.deadline import Deadline

_WAITED_S = 0.001  # less is not worth a word


class Limiting:
    """Waits for the place, or sheds. A call that was sent gives its place back by itself, and says how it went."""

    def __init__(self, fleet: Fleet, inner: Generate[Placed]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        slot = await self._fleet.pools[job.model].limiter.enter(job.ticket)
        try:
            if slot.waited_s > _WAITED_S:
                attempt.job = _after(job, slot.waited_s)
            return await self._inner(Placed(attempt, slot))
        except BaseException:
            slot.release(unused=True)
            raise


def _after(job: Job, waited_s: float) -> Job:
    """The job after its wait. Nobody waits for the first text of a batch's item before it is asked for."""
    job.report.decisions.add(Act.LIMIT_WAITED, job.model, f"{waited_s * 1000:.0f} ms for a place")
    if not job.ticket.placed:
        return job
    return replace(job, first_text=Deadline(job.first_text.at + waited_s, job.first_text.clock))
