"""An attempt waits for a slot at its model, or is shed."""

from __future__ import annotations

from dataclasses import replace

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Generate, Granted, Job
from services.gateway.labels import Act
from services.gateway.upstream.fleet import Fleet, Pool
from services.runtime.deadline import Deadline
from services.runtime.errors import Starting, Unavailable

_WAITED_S = 0.001  # seconds: shorter waits are not reported


class Limiting:
    """Waits for a slot, or sheds. Refuses before the wait where no replica of the model may be called, or a drill drops
    the call. A call that was sent releases its slot when it ends."""

    def __init__(self, fleet: Fleet, inner: Generate[Granted]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, attempt: Attempt) -> Call:
        job = attempt.job
        pool = self._fleet.pools[job.model]
        _check_available(pool, job)
        slot = await pool.limiter.enter(job.slot_request)
        try:
            if slot.waited_s > _WAITED_S:
                attempt.job = _after(job, slot.waited_s)
            return await self._inner(Granted(attempt, slot))
        except BaseException:
            slot.release(unused=True)
            raise


def _check_available(pool: Pool, job: Job) -> None:
    if pool.is_open(job.slot_request.tenant):
        refusal = pool.refusal(job.slot_request.tenant)
        if not isinstance(refusal, Starting):
            job.report.decisions.add(Act.BREAKER_REFUSED, pool.model, refusal.outline)
        raise refusal
    if pool.drop_share and pool.rng.random() < pool.drop_share:
        job.report.decisions.add(Act.DRILL_DROPPED, pool.model, f"a drill drops {pool.drop_share:.0%} of calls")
        raise Unavailable(f"{pool.model}: dropped by a drill")


def _after(job: Job, waited_s: float) -> Job:
    """The job after its wait. For a job in the background, the time to first text starts only now."""
    job.report.decisions.add(Act.LIMIT_WAITED, job.model, f"{waited_s * 1000:.0f} ms for a slot")
    if not job.slot_request.in_background:
        return job
    return replace(job, first_text=Deadline(job.first_text.at + waited_s, job.first_text.clock))
