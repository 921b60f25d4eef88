"""Clocks that stand still until a test moves them, and an event loop that runs on one."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.leftovers import nothing_left

T = TypeVar("T")


class PausedClock:
    """Call it for the time in seconds; `advance` moves it."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class PausedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when nothing else is left to do, and then to the next timer at once. It
    serves no I/O: what would wait for ever is an error."""

    def __init__(self) -> None:
        self.clock = PausedClock()
        super().__init__(_LeapingSelector(self.clock))

    def time(self) -> float:
        return self.clock()


class _LeapingSelector(selectors.DefaultSelector):
    def __init__(self, clock: PausedClock):
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set")
        self._clock.advance(timeout)
        return super().select(0)


def on_paused_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in no time. It leaves nothing behind (`leftovers.py`)."""

    async def tidy() -> T:
        async with nothing_left():
            return await main

    with asyncio.Runner(loop_factory=PausedLoop) as runner:
        return runner.run(tidy())


def loop_clock() -> float:
    """The running loop's time, for what is given a clock."""
    return asyncio.get_running_loop().time()
