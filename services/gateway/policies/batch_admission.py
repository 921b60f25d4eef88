"""Batch admission: batches take the slots that a limiter can spare beside interactive requests.

    BatchShare       the share of a limiter that batches may have together.
    BatchAdmission   one batch. Its items wait here, in its own queue; a few at a time are on their way to a slot.
    Backlog          one limiter. Items on their way wait here: tenants by weight, within a tenant by class, then first
                     come, first served, so that two batches of one tenant take turns.

Nothing here counts as waiting at the limiter: a batch neither fills its queue nor has others shed. Its items wait for
as long as their own budgets last, while an interactive request is refused within a moment when there is no capacity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.gateway.policies.slot import SlotRequest
from services.runtime.deadline import Deadline
from services.runtime.policy.fair import FairQueue, Rank

_ON_THEIR_WAY = 4  # of a batch: so many that short answers follow each other closely, so few that all can take turns
_QUIET_S = 5.0
_LOOK_S = 0.05  # seconds: spare capacity also grows when the pressure of the process falls, which sends no event


class BatchShare:
    """The share of slots for batches, and a smaller share `beside` interactive requests: while one came in the last
    5 s, because each call at a backend makes it slower for all. One slot at least."""

    def __init__(self, share: float = 0.5, beside: float = 0.1):
        self._share, self._beside = share, beside
        self.last_interactive_at = float("-inf")  # on the limiter's clock

    def max_slots(self, limit: int, now: float) -> float:
        """Another slot may be taken while fewer than this are."""
        return limit * (self._share if now - self.last_interactive_at > _QUIET_S else self._beside)


class BatchAdmission:
    """The turns of one batch, given in the order in which they are asked for."""

    def __init__(self, at_once: int = _ON_THEIR_WAY):
        self._free = asyncio.Semaphore(at_once)

    async def turn(self, deadline: Deadline) -> ItemTurn:
        """Wait for a turn. Raises TimeoutError when it does not come by `deadline`."""
        async with asyncio.timeout(_seconds(deadline)):
            await self._free.acquire()
        return ItemTurn(self._free.release)


class ItemTurn:
    """An item on its way to a slot."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[], None]):
        self._then: Callable[[], None] | None = then

    def end(self) -> None:
        """End the turn, once: the item has a slot or needs none any more, and the next one may go."""
        then, self._then = self._then, None
        if then:
            then()


class Releasable(Protocol):
    def release(self, *, unused: bool = False) -> bool: ...


P = TypeVar("P", bound=Releasable)


@dataclass(slots=True, eq=False)
class _Waiter(Generic[P]):
    tenant: str
    weight: float
    rank: Rank
    slot: asyncio.Future[P]


class Backlog(Generic[P]):
    """Items that wait until `spare` returns a slot for them; it returns None while there is none."""

    def __init__(self, spare: Callable[[], P | None]):
        self._spare = spare
        self._queue = FairQueue[_Waiter[P]]()
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._queue)

    async def enter(self, request: SlotRequest) -> P:
        """Wait for a slot; raises TimeoutError when there is none by the deadline of the request."""
        self._arrivals += 1
        rank = (float(request.score), -self._arrivals)
        slot: asyncio.Future[P] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(request.tenant, request.weight, rank, slot)
        self._queue.add(waiter)
        try:
            async with asyncio.timeout(_seconds(request.deadline)):
                return await self._until_admitted(slot)
        except BaseException:  # late, or cancelled: also after a slot was given to it that it never saw
            if not self._queue.remove(waiter):
                slot.result().release(unused=True)
            raise

    def admit(self) -> None:
        """Give slots that may have become free to waiting items."""
        while (waiter := self._queue.best()) and (slot := self._spare()):
            self._queue.take(waiter)
            waiter.slot.set_result(slot)

    async def _until_admitted(self, slot: asyncio.Future[P]) -> P:
        self.admit()
        while not slot.done():
            await asyncio.wait({slot}, timeout=_LOOK_S)
            self.admit()
        return slot.result()


def _seconds(deadline: Deadline) -> float | None:
    """The time left, in the form for `asyncio.timeout`."""
    remaining = deadline.remaining()
    return remaining if remaining < float("inf") else None
