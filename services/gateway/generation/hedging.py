"""A second call where the first text is late. The first text wins, and the other call is cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from services.gateway.generation.first_token_timeout import FirstTokenTimeout
from services.gateway.generation.job import Placed
from services.gateway.generation.stream import Generate, TextStream
from services.gateway.labels import Act
from services.gateway.policies.race import Race
from services.gateway.policies.ticket import Slot
from services.gateway.upstream.fleet import Fleet, Pool


class Hedging:
    """Races the calls of one job to their first text, for as long as there is patience with them."""

    def __init__(self, fleet: Fleet, inner: Generate[Placed]):
        self._fleet, self._inner, self._patience = fleet, inner, FirstTokenTimeout(fleet)

    async def __call__(self, placed: Placed) -> TextStream:
        job = placed.job
        if not job.failed:
            self._fleet.hedges.call()
        other = None if job.failed or job.once else self._other(placed)
        after_s = self._fleet.pools[job.model].hedge.after_s() if other else None
        if after_s is None and not self._patience.ends(job):
            return await self._inner(placed)
        return await _Runners(self._fleet, self._inner, self._patience, placed, other, after_s).run()

    def _other(self, placed: Placed) -> Pool | None:
        """Who gets the second call: another replica of the model, else, where that is wanted, the next best model."""
        models, pools = placed.job.models, self._fleet.pools
        if len(pools[models[0]].replicas) > 1:
            return pools[models[0]]
        return pools[models[1]] if len(models) > 1 and self._fleet.across_models else None


class _Runners:
    """One race. `other` is for the second call, which is wanted after `after_s`."""

    def __init__(
        self,
        fleet: Fleet,
        inner: Generate[Placed],
        patience: FirstTokenTimeout,
        placed: Placed,
        other: Pool | None,
        after_s: float | None,
    ):
        self._fleet, self._inner, self._patience, self._other = fleet, inner, patience, other
        self._race = Race[TextStream](after_s, self._second, self._patience_s)
        self._placed = replace(placed, race=self._race)
        self._calls, self._before = placed.job.report.calls, len(placed.job.report.calls)
        self._told = False

    async def run(self) -> TextStream:
        try:
            winner = await self._race.run(self._inner(self._placed))
        finally:
            self._fleet.hedges.leave(self._race)
        if winner.kind == "hedge":
            after = f"after {winner.age_s() * 1000:.0f} ms"
            self._placed.job.report.decisions.add(Act.HEDGE_WON, winner.replica, after)
        return winner

    def _patience_s(self) -> float:
        running = self._calls[self._before :]
        if not running:
            return float("inf")
        job, pool = self._placed.job, running[-1].pool
        return self._patience.seconds(job, pool, [*job.failed, *(call.replica for call in running)])

    def _second(self) -> asyncio.Task[TextStream] | None:
        """The second call, where load, budget and breakers allow it."""
        pool, job, first = self._other, self._placed.job, self._calls[-1]
        if pool is None:
            return None
        waited = f"no first text after {first.age_s() * 1000:.0f} ms ({first.pool.hedge.basis})"
        if pool.is_open(job.ticket.tenant, (first.replica,)):
            self._fleet.hedges.leave(self._race)  # others may have somebody to ask
            self._skip(pool, f"{waited}; no other replica is well")
            return None
        slot = pool.limiter.spare()
        if slot is None:
            self._fleet.hedges.leave(self._race)  # others may have a place
            self._skip(pool, f"{waited}; the limiter has no place to spare")
            return None
        if not self._fleet.hedges.spend(self._race):
            slot.release(unused=True)
            self._skip(pool, f"{waited}; the budget of second calls is used up")
            return None
        models = job.models if pool is first.pool else job.models[1:]
        placed = Placed(replace(job, models=models), slot, "hedge", (first.replica,), waited, self._race)
        call = asyncio.get_running_loop().create_task(self._inner(placed))
        call.add_done_callback(partial(self._give_back, slot))
        return call

    def _give_back(self, slot: Slot, call: asyncio.Task[TextStream]) -> None:
        """The place and the price of a call that came to nothing before it was sent, also of one that was cancelled
        before it began. One that was sent has given its place back by itself."""
        if (call.cancelled() or call.exception()) and slot.release(unused=True):
            self._fleet.hedges.refund()

    def _skip(self, pool: Pool, why: str) -> None:
        """It may be asked for again: the first refusal is told."""
        if not self._told:
            self._told = True
            self._placed.job.report.decisions.add(Act.HEDGE_SKIPPED, pool.model, why)
