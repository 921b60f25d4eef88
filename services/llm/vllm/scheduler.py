"""One at a time, tenants in turn: for work that is worth a bound of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.runtime.errors import ShareUsed
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_places import FairPlaces

_RETRY_S = 0.5


@dataclass(slots=True, eq=False)
class _WaitingTenant:
    tenant: str
    rank: Rank
    weight: float = 1.0
    called: asyncio.Event = field(default_factory=asyncio.Event)

    def call(self) -> bool:
        self.called.set()
        return True


class Scheduler:
    """A tenant may have `most` inside, the one whose turn it is included."""

    def __init__(self, most: int):
        self._most, self._inside = most, Counter[str]()
        self._places: FairPlaces[_WaitingTenant] = FairPlaces(1, _WaitingTenant.call)

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Inside it is `tenant`'s turn. Raises `ShareUsed` where it has as many inside as it may."""
        if self._inside[tenant] >= self._most:
            raise ShareUsed(
                f"response_format: at most {self._most} new ones at once, got one more", retry_delay_s=_RETRY_S
            )
        self._inside[tenant] += 1
        waiter = _WaitingTenant(tenant, self._places.rank())
        self._places.add(waiter)
        try:
            await waiter.called.wait()
            yield
        finally:
            if not self._places.waiting.remove(waiter):  # else it left before its turn
                self._places.ended()
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant]
