"""One thread that tenants use in turn, so that the flood of one is waited for by none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from services.runtime.errors import Exhausted
from services.runtime.policy.fair import Rank
from services.runtime.policy.fair_places import FairPlaces

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Turn:
    tenant: str
    rank: Rank
    begun: asyncio.Future[None]
    weight: float = 1.0


class Turns:
    """Runs work on one thread. `max_waiting` may wait for it."""

    def __init__(self, name: str, max_waiting: int, initializer: Callable[[], None]):
        self._name, self._max_waiting = name, max_waiting
        self._thread = ThreadPoolExecutor(1, name, initializer)
        self._places: FairPlaces[_Turn] = FairPlaces(1, _begin)

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """What `work` returns. What has begun goes on without its caller. Raises `Exhausted` when too much waits."""
        await self._turn(tenant)
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def close(self) -> None:
        """End the thread. Nothing may wait for it any more."""
        self._thread.shutdown()

    async def _turn(self, tenant: str) -> None:
        if len(self._places.waiting) >= self._max_waiting:
            raise Exhausted(f"{self._name}: {self._max_waiting} wait", retry_delay_s=1)
        turn = _Turn(tenant, self._places.rank(), asyncio.get_running_loop().create_future())
        self._places.add(turn)
        try:
            await turn.begun
        except asyncio.CancelledError:
            if not self._places.waiting.remove(turn) and not turn.begun.cancelled():
                self._places.ended()
            raise

    def _ended(self, running: asyncio.Future[T]) -> None:
        if not running.cancelled():
            running.exception()  # its caller may have left
        self._places.ended()


def _begin(turn: _Turn) -> bool:
    if turn.begun.cancelled():  # and it has not run since
        return False
    turn.begun.set_result(None)
    return True
