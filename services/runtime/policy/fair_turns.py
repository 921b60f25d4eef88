"""One turn at a time, which tenants take by fair queueing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_places import FairPlaces


@dataclass(eq=False, slots=True)
class _Turn:
    tenant: str
    weight: float
    rank: Rank
    begun: asyncio.Future[None]


class FairTurns:
    """Each turn that has begun is to be `ended`."""

    def __init__(self) -> None:
        self._places: FairPlaces[_Turn] = FairPlaces(1, _begin)

    @property
    def waiting(self) -> int:
        """How many turns have not begun."""
        return len(self._places.waiting)

    async def begin(self, tenant: str, weight: float = 1.0) -> None:
        """Wait for a turn. One that is cancelled while it waits has no turn."""
        turn = _Turn(tenant, weight, self._places.rank(), asyncio.get_running_loop().create_future())
        self._places.add(turn)
        try:
            await turn.begun
        except asyncio.CancelledError:
            if not self._places.waiting.remove(turn) and not turn.begun.cancelled():
                self.ended()
            raise

    def ended(self) -> None:
        """The turn that runs is over."""
        self._places.ended()


def _begin(turn: _Turn) -> bool:
    if turn.begun.cancelled():  # and it has not run since
        return False
    turn.begun.set_result(None)
    return True
