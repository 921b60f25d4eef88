"""How long to wait for a first text. Who is silent must not have all of the time: while another replica or model is
there that is well, a part of the time is kept for it. Nobody is given up before it had what it usually needs, nor for
one that would need more than is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.gateway.generation.job import Attempt, Job
from services.gateway.upstream.fleet import Fleet, Pool, Replica


class FirstTokenTimeout:
    """With the calls of one job, by what is known of the fleet."""

    def __init__(self, fleet: Fleet):
        self._fleet = fleet

    def ends(self, job: Job) -> bool:
        """Whether it may end before the job's deadline does; where not, nobody need look."""
        if job.first_text.at < float("inf"):
            return True
        alternatives = len(job.models) > 1 or len(self._fleet.pools[job.model].replicas) > 1
        return alternatives and not job.once and self._fleet.kept_share > 0

    def seconds(self, attempt: Attempt) -> float:
        """With an attempt and its hedge; without end before one is sent."""
        job, calls = attempt.job, attempt.calls
        if not calls:
            return float("inf")
        pool, asked = calls[-1].pool, [*attempt.failed, *(call.replica for call in calls)]
        within_s, left_s = job.first_text.remaining(), job.deadline.remaining()
        other = self._alternative(job, pool, asked)
        if other is None:
            return within_s
        patience_s = max(min(left_s * (1 - self._fleet.kept_share), self._fleet.slow_s), pool.usual.needs_s())
        in_vain = left_s - patience_s < other.usual.needs_s()
        return within_s if in_vain else min(within_s, patience_s)

    def _alternative(self, job: Job, pool: Pool, asked: Sequence[Replica]) -> Pool | None:
        """Who would be called if those `asked` brought nothing: another replica, or the next model."""
        if job.once or not self._fleet.kept_share:
            return None
        if not pool.is_open(job.ticket.tenant, asked):
            return pool
        later = job.models[job.models.index(pool.model) + 1 :] if job.others_when_late else ()
        pools = [self._fleet.pools[model] for model in later if model in self._fleet.pools]
        return next((other for other in pools if not other.is_open(job.ticket.tenant)), None)
