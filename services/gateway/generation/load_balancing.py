"""The replica that an attempt asks."""

from __future__ import annotations

from services.gateway.generation.call import Call
from services.gateway.generation.job import Generate, Granted, Sent
from services.gateway.labels import Act
from services.gateway.upstream import balance
from services.gateway.upstream.fleet import Fleet
from services.runtime.errors import Unavailable


class LoadBalancing:
    """Chooses the best available replica, by balancing policy, breakers and the prefix of the prompt. Raises
    `BreakerOpen`, or `Throttled`, where there is none, and `Unavailable` where the job has been billed."""

    def __init__(self, fleet: Fleet, inner: Generate[Sent]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, granted: Granted) -> Call:
        attempt, job = granted.attempt, granted.attempt.job
        if job.report.billed:  # the last reader has left in this turn of the event loop, and would not be charged
            raise Unavailable("cancelled: the last reader has left")
        pool = self._fleet.pools[job.model]
        tenant = job.slot_request.tenant
        prompt = balance.blocks_of(job.request) if pool.reads_prompts else ()
        picked = pool.pick(attempt.excluded or pool.elsewhere(attempt.failed), prompt, tenant)
        if picked is None and not attempt.excluded:
            picked = pool.pick((), prompt, tenant)
        if picked is None:
            raise pool.refusal(tenant)
        replica, permit = picked
        if known := replica.prefixes.matched(prompt):
            job.report.decisions.add(
                Act.PREFIX_MATCHED, replica, f"{known} of {len(prompt)} blocks in the replica's prefix cache"
            )
        return await self._inner(Sent(granted, pool, replica, permit, prompt))
