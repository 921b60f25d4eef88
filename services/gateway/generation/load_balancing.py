"""The replica to call: the best of those that are well, by balancing policy, breakers and what a prompt begins with."""

from __future__ import annotations

from services.gateway.generation.call import Call
from services.gateway.generation.job import Placed, Sent
from services.gateway.generation.stream import Generate
from services.gateway.labels import Act
from services.gateway.upstream import prefix
from services.gateway.upstream.fleet import Fleet


class LoadBalancing:
    """Raises `BreakerOpen` where there is none."""

    def __init__(self, fleet: Fleet, inner: Generate[Sent]):
        self._fleet, self._inner = fleet, inner

    async def __call__(self, placed: Placed) -> Call:
        attempt, job = placed.attempt, placed.attempt.job
        pool = self._fleet.pools[job.model]
        tenant = job.ticket.tenant
        prompt = prefix.of_request(job.request) if pool.reads_prompts else ()
        picked = pool.pick(attempt.never or pool.elsewhere(attempt.failed), prompt, tenant)
        if picked is None and not attempt.never:
            picked = pool.pick((), prompt, tenant)
        if picked is None:
            raise pool.refusal(tenant)
        replica, permit = picked
        if known := replica.prefixes.matched(prompt):
            job.report.decisions.add(Act.PREFIX_MATCHED, replica, f"{known} of {len(prompt)} blocks")
        return await self._inner(Sent(placed, pool, replica, permit, prompt))
