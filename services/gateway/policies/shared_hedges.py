"""One hedge budget for all gateways, on Redis.

Each gateway earns its share of a second call with each request, and spends without asking anybody. What it does not
need goes into a pool, and who has too little takes from there, at once when a call waits for it. Nothing is ever made
or counted twice on the way: what is under way when Redis or a gateway dies is lost, so the second calls of all gateways
are at most the share of all requests. While Redis is away each has what it earned itself.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import Counter

from services.gateway.policies.hedge import HedgeBudget
from services.runtime.deadline import set_within
from services.runtime.shared_state import PREFIX, SharedState, SharedStateLost

if TYPE_CHECKING:
    from redis.asyncio import Redis

EVERY_S = 0.1
_KEY = f"{PREFIX}hedges"
_FORGOTTEN_MS = 3_600_000  # a pool that nobody uses

# KEYS: the pool. ARGV: what is put in, what is wanted, the most it holds, when it is forgotten. Returns what is taken.
_EXCHANGE = """
local pool = math.min(ARGV[3], (redis.call('GET', KEYS[1]) or 0) + ARGV[1])
local taken = math.min(pool, ARGV[2])
redis.call('SET', KEYS[1], string.format('%.17g', pool - taken), 'PX', ARGV[4])
return string.format('%.17g', taken)
"""
_EXCHANGED = Counter(
    "hedgerow_hedges_exchanged", "Second calls put into the gateways' common pool, and taken from it.", ["direction"]
)


class HedgePool:
    """This gateway's part in it. `run()` must be running."""

    def __init__(self, state: SharedState, budget: HedgeBudget, every_s: float = EVERY_S):
        self._state, self._budget, self._every_s = state, budget, every_s

    async def run(self) -> None:
        """Put in and take out, until cancelled."""
        while True:
            await set_within(self._budget.wanting, self._every_s)
            self._budget.wanting.clear()
            with suppress(SharedStateLost):
                await self._exchange()
            if self._budget.missing():  # the pool is empty: to ask again at once would be for nothing
                await asyncio.sleep(self._every_s)

    async def _exchange(self) -> None:
        if not self._state.up:
            return
        given, wanted = self._budget.draw(), self._budget.missing()
        if not (given or wanted):
            return
        taken = await self._state.ask(partial(_exchange, given=given, wanted=wanted, most=self._budget.burst))
        self._budget.put(taken)
        _EXCHANGED.labels("given").inc(given)
        _EXCHANGED.labels("taken").inc(taken)


async def _exchange(client: Redis, given: float, wanted: float, most: float) -> float:
    return float(await cast(Any, client).eval(_EXCHANGE, 1, _KEY, given, wanted, most, _FORGOTTEN_MS))
