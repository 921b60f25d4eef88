"""One thread that tenants use in turn, so that the flood of one is waited for by none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.runtime.errors import Exhausted
from services.runtime.policy.fair_places import FairTurns

T = TypeVar("T")


class Turns:
    """Runs work on one thread. `max_waiting` may wait for it."""

    def __init__(self, name: str, max_waiting: int, initializer: Callable[[], None]):
        self._name, self._max_waiting = name, max_waiting
        self._thread = ThreadPoolExecutor(1, name, initializer)
        self._turns = FairTurns()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """The result of `work`. Work that has begun goes on without its caller. Raises `Exhausted` when too much
        waits."""
        if self._turns.waiting >= self._max_waiting:
            raise Exhausted(f"{self._name}: {self._max_waiting} wait", retry_delay_s=1)
        await self._turns.begin(tenant)
        running = asyncio.get_running_loop().run_in_executor(self._thread, work)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def close(self) -> None:
        """End the thread. Nothing may wait for it any more."""
        self._thread.shutdown()

    def _ended(self, running: asyncio.Future[T]) -> None:
        if not running.cancelled():
            running.exception()  # its caller may have left
        self._turns.ended()
