"""What the models' own services say of their contexts. An engine counts, and a server's list of models may say it; the
router's table has what its operator knew."""

from __future__ import annotations

import asyncio

from services.gateway.upstream.completion import Llm
from services.gateway.upstream.fleet import Fleet, Pool
from services.gateway.upstream.routes import Routes
from services.runtime.errors import ServiceError, Unavailable

_ASKED_S = 2.0  # the longest one may take to say
_AWAY_S, _AGAIN_S = 2.0, 60.0  # to the next time, where one is away, and where all have been asked


async def follow_contexts(fleet: Fleet, routes: Routes) -> None:
    """Ask every model's replicas, again and again: a provider may come later, or serve another model. Never returns."""
    while True:
        there = await asyncio.gather(*(_learn(pool, routes) for pool in fleet.pools.values()))
        await asyncio.sleep(_AGAIN_S if all(there) else _AWAY_S)


async def _learn(pool: Pool, routes: Routes) -> bool:
    """Whether all replicas were there to be asked. Of several contexts the smallest counts."""
    told = [await _ask(replica.llm) for replica in tuple(pool.replicas)]
    if known := [context for context in told if context]:
        routes.learn(pool.model, min(known))
    return None not in told


async def _ask(llm: Llm) -> int | None:
    """None: it is away."""
    try:
        return await llm.context_tokens(_ASKED_S)
    except Unavailable:
        return None
    except ServiceError:  # of another version, or busy
        return 0
