"""A second call where the first text is late, and how long to wait for a first text."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from services.gateway.generation.call import Call
from services.gateway.generation.job import Attempt, Generate, Granted, Job
from services.gateway.generation.retrying import RETRIES
from services.gateway.labels import Act
from services.gateway.policies.hedge import HedgeMoment
from services.gateway.policies.race import Race
from services.gateway.policies.slot import Slot
from services.gateway.upstream.fleet import Fleet, Pool
from services.runtime.errors import TooLate


class FirstTokenWait:
    """How long to wait for the first text of a job.

    A silent replica must not use all of the time: while another replica or model is available, a part of the time
    (`kept_share`) is kept for it. A call is given up only after it has had the time that the model usually needs, and
    only where enough is left for the alternative.
    """

    def __init__(self, fleet: Fleet):
        self._fleet = fleet

    def needs_timer(self, job: Job) -> bool:
        """Whether the first text may be due before the deadline of the job; otherwise no timer is needed."""
        if job.first_text.at < float("inf"):
            return True
        alternatives = len(job.models) > 1 or len(self._fleet.pools[job.model].replicas) > 1
        return alternatives and not job.single_attempt and self._fleet.kept_share > 0

    def seconds(self, attempt: Attempt) -> float:
        """Seconds to wait for an attempt and its hedge; infinite before a call is sent."""
        job, calls = attempt.job, attempt.calls
        if not calls:
            return float("inf")
        pool, other = calls[-1].pool, self._alternative(attempt)
        within_s, left_s = job.first_text.remaining(), job.deadline.remaining()
        if other is None:
            return within_s
        wait_s = max(min(left_s * (1 - self._fleet.kept_share), self._fleet.slow_s), pool.baseline.needs_s())
        in_vain = left_s - wait_s < other.baseline.needs_s()
        return within_s if in_vain else min(within_s, wait_s)

    def gives_up(self, attempt: Attempt) -> bool:
        """Whether an attempt whose time is over ends: the retries may have been used up meanwhile."""
        return attempt.job.first_text.is_over() or self._alternative(attempt) is not None

    def _alternative(self, attempt: Attempt) -> Pool | None:
        """The pool to call where an attempt stays silent: that of another replica, if a retry is possible, or of the
        next model."""
        job, calls = attempt.job, attempt.calls
        if job.single_attempt or not self._fleet.kept_share:
            return None
        pool, asked = calls[-1].pool, [*attempt.failed, *(call.replica for call in calls)]
        tenant = job.slot_request.tenant
        may_retry = len(calls) == 1 and attempt.number <= RETRIES and self._fleet.retry.ready(tenant)
        if may_retry and not pool.is_open(tenant, asked):
            return pool
        later = job.models[job.models.index(pool.model) + 1 :] if job.fallback_when_late else ()
        pools = [self._fleet.pools[model] for model in later if model in self._fleet.pools]
        return next((other for other in pools if not other.is_open(tenant)), None)


class Hedging:
    """Races the calls of one job to their first text, within the first-token timeout."""

    def __init__(self, fleet: Fleet, inner: Generate[Granted]):
        self._fleet, self._inner, self._wait = fleet, inner, FirstTokenWait(fleet)

    async def __call__(self, granted: Granted) -> Call:
        job, retry = granted.attempt.job, granted.attempt.number > 1
        if job.deadline.is_over() or job.first_text.is_over():  # a model would read the prompt in vain
            raise TooLate(f"{job.model}: no time is left for a first text")
        if not retry:
            self._fleet.hedges.count_call()
        other = None if retry or job.single_attempt else self._other(job)
        moment = self._fleet.pools[job.model].hedge.moment() if other else None
        if moment is None and not self._wait.needs_timer(job):
            return await self._inner(granted)
        runners = _HedgeRace(self._fleet, self._inner, self._wait, granted.attempt, other, moment)
        return await runners.run(self._inner(granted))

    def _other(self, job: Job) -> Pool | None:
        """The pool for the second call: another replica of the model, else, if enabled, the next best model."""
        models, pools = job.models, self._fleet.pools
        if len(pools[models[0]].replicas) > 1:
            return pools[models[0]]
        return pools[models[1]] if len(models) > 1 and self._fleet.across_models else None


class _HedgeRace:
    """A race of two calls. `other` is for the second call, which starts at `moment`."""

    def __init__(
        self,
        fleet: Fleet,
        inner: Generate[Granted],
        wait: FirstTokenWait,
        first: Attempt,
        other: Pool | None,
        moment: HedgeMoment | None,
    ):
        self._fleet, self._inner, self._first, self._other, self._skip_recorded = fleet, inner, first, other, False
        self._basis, after_s = (moment.basis, moment.after_s) if moment else ("", None)
        self._race: Race[Call] = Race(
            after_s, self._second, lambda: wait.seconds(first), lambda: first.calls, lambda: wait.gives_up(first)
        )

    async def run(self, first: Coroutine[Any, Any, Call]) -> Call:
        try:
            winner = await self._race.run(first)
        finally:
            self._fleet.hedges.dequeue(self._race)
        if winner.kind == "hedge":
            after = f"after {winner.age_s() * 1000:.0f} ms"
            self._first.job.report.decisions.add(Act.HEDGE_WON, winner.replica, after)
        return winner

    def _second(self) -> asyncio.Task[Call] | None:
        """The second call, where load, budget and breakers allow it."""
        pool, job, first = self._other, self._first.job, self._first.call
        if pool is None or first is None or job.deadline.is_over():
            return None
        waited = f"no first text after {first.age_s() * 1000:.0f} ms ({self._basis})"
        if pool.is_open(job.slot_request.tenant, (first.replica,)):
            self._fleet.hedges.dequeue(self._race)  # others may have a replica to ask
            self._skip(pool, f"{waited}; no other replica is healthy")
            return None
        slot = pool.limiter.spare()
        if slot is None:
            self._fleet.hedges.dequeue(self._race)  # others may have a slot
            self._skip(pool, f"{waited}; the limiter has no spare slot")
            return None
        if not self._fleet.hedges.spend(self._race, job.slot_request.tenant, job.slot_request.weight):
            slot.release(unused=True)
            self._skip(pool, f"{waited}; the hedge budget is used up")
            return None
        models = job.models if pool is first.pool else job.models[1:]
        self._first.hedge = hedge = Attempt(replace(job, models=models), "hedge", waited, excluded=(first.replica,))
        call = asyncio.get_running_loop().create_task(self._inner(Granted(hedge, slot)))
        call.add_done_callback(partial(self._give_back, slot))
        return call

    def _give_back(self, slot: Slot, call: asyncio.Task[Call]) -> None:
        """Return the slot and the cost of a call that failed before it was sent, also of one that was cancelled before
        it began. A call that was sent releases its slot when it ends."""
        if (call.cancelled() or call.exception()) and slot.release(unused=True):
            self._fleet.hedges.refund()

    def _skip(self, pool: Pool, why: str) -> None:
        """Record why there is no hedge. Only the first refusal is recorded, because the race asks again."""
        if not self._skip_recorded:
            self._skip_recorded = True
            self._first.job.report.decisions.add(Act.HEDGE_SKIPPED, pool.model, why)
