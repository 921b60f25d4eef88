"""One at a time, tenants in turn: for work that is worth a bound of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from services.runtime.errors import ShareUsed
from services.runtime.policy.fair import FairQueue, Rank

_RETRY_S = 0.5


@dataclass(slots=True, eq=False)
class _Waiter:
    tenant: str
    rank: Rank
    weight: float = 1.0
    called: asyncio.Event = field(default_factory=asyncio.Event)


class Turns:
    """A tenant may have `most` inside, the one whose turn it is included."""

    def __init__(self, most: int):
        self._most, self._inside = most, Counter[str]()
        self._queue, self._arrivals, self._busy = FairQueue[_Waiter](), 0, False

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Inside it is `tenant`'s turn. Raises `ShareUsed` where it has as many inside as it may."""
        if self._inside[tenant] >= self._most:
            raise ShareUsed(
                f"response_format: at most {self._most} new ones at once, got one more", retry_delay_s=_RETRY_S
            )
        self._inside[tenant] += 1
        try:
            await self._called(tenant)
            try:
                yield
            finally:
                self._next()
        finally:
            self._inside[tenant] -= 1
            if not self._inside[tenant]:
                del self._inside[tenant]

    async def _called(self, tenant: str) -> None:
        if not self._busy:
            self._busy = True
            return
        self._arrivals += 1
        waiter = _Waiter(tenant, (0.0, -self._arrivals))  # the first of a tenant first
        self._queue.add(waiter)
        try:
            await waiter.called.wait()
        except asyncio.CancelledError:
            if not self._queue.remove(waiter):  # it was called meanwhile
                self._next()
            raise

    def _next(self) -> None:
        waiter = self._queue.best()
        self._busy = waiter is not None
        if waiter is not None:
            self._queue.take(waiter)
            waiter.called.set()
