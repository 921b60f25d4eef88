"""Slots that are taken in turn: so many run at once, and of those that wait tenants are served by fair queueing.

By default every turn counts the same. With `charged`, whose turns have cost the least for its weight is next.
`FairTurns` are slots for coroutines that wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from services.runtime.policy.fair import FairQueue, Rank, Waiting

W = TypeVar("W", bound=Waiting)


class FairSlots(Generic[W]):
    """`slots` may run at once. `start` begins one, and says whether that now runs, until `ended`, which
    gets the item, and its cost where items are `charged`."""

    def __init__(self, slots: int, start: Callable[[W], bool], charged: bool = False):
        self._slots, self._start, self._running = slots, start, 0
        self._numbers = count()
        self.waiting: FairQueue[W] = FairQueue(charged)

    def rank(self) -> Rank:
        """The rank of a new waiter: a tenant's first comes first."""
        return 0.0, -next(self._numbers)

    def add(self, waiter: W) -> None:
        """Have one started when its turn comes, maybe at once."""
        self.waiting.add(waiter)
        self._fill(self._slots)

    def ended(self, waiter: W | None = None, cost: float = 0.0) -> None:
        """End a running turn. `cost` is in turns, besides the one that each counts for."""
        self._running -= 1
        if waiter is not None:
            self.waiting.charge(waiter, cost)
        self._fill(self._slots)
        if not self._running:
            self.waiting.rest()

    def start_all(self) -> None:
        """Start what waits, however much runs: `start` refuses it, because it is over."""
        self._fill(self._running + len(self.waiting))

    def _fill(self, slots: int) -> None:
        while self._running < slots and (waiter := self.waiting.best()):
            self.waiting.take(waiter)
            self._running += self._start(waiter)


def leaves_room(under_way: Collection[str], tenant: str, slots: int) -> bool:
    """Whether one more of the tenant's may be under way: as many as slots are free, so a tenant alone has half. For
    work that is dropped rather than waits. `under_way`: the tenant of each."""
    return sum(name == tenant for name in under_way) < slots - len(under_way)


@dataclass(eq=False, slots=True)
class _Turn:
    tenant: str
    weight: float
    rank: Rank
    begun: asyncio.Future[None]


class FairTurns:
    """`slots` turns at a time. Each turn that has begun must be `ended`."""

    def __init__(self, slots: int = 1) -> None:
        self._slots: FairSlots[_Turn] = FairSlots(slots, _begin)

    @property
    def waiting(self) -> int:
        """The number of turns that have not begun."""
        return len(self._slots.waiting)

    async def begin(self, tenant: str, weight: float = 1.0) -> None:
        """Wait for a turn. A waiter that is cancelled gets none."""
        turn = _Turn(tenant, weight, self._slots.rank(), asyncio.get_running_loop().create_future())
        self._slots.add(turn)
        try:
            await turn.begun
        except asyncio.CancelledError:
            if not self._slots.waiting.remove(turn) and not turn.begun.cancelled():
                self.ended()
            raise

    def ended(self) -> None:
        """End a turn that has begun."""
        self._slots.ended()


def _begin(turn: _Turn) -> bool:
    if turn.begun.cancelled():  # and it has not run since
        return False
    turn.begun.set_result(None)
    return True
