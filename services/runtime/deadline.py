"""A deadline, and the time that remains until it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

Clock = Callable[[], float]  # seconds, monotonic
_NOTHING_S = 0.002


@dataclass(frozen=True, slots=True)
class Deadline:
    """`at` on `clock`'s scale. `Deadline.never()` has no end."""

    at: float
    clock: Clock = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Clock = time.monotonic) -> Deadline:
        return cls(clock() + seconds, clock)

    @classmethod
    def never(cls, clock: Clock = time.monotonic) -> Deadline:
        return cls(float("inf"), clock)

    def remaining(self) -> float:
        """Seconds until the deadline; 0 after it, infinite if there is none."""
        return max(0.0, self.at - self.clock())

    def is_over(self) -> bool:
        """Whether the deadline has passed, within the precision of timers."""
        return self.remaining() < _NOTHING_S


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set, which is done after `seconds` at the latest. A timer that sets an event costs a fifth
    of `asyncio.timeout`, and cancels nothing."""
    timer = asyncio.get_running_loop().call_later(max(seconds, 0), event.set) if seconds < float("inf") else None
    try:
        await event.wait()
    finally:
        if timer:
            timer.cancel()


async def until_set(event: asyncio.Event, work: Coroutine[Any, Any, object]) -> None:
    """Run `work` until it ends or `event` is set, which cancels it."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(event.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
