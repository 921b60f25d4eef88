"""Waiting for what another task or process is about to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any


async def until(
    look: Callable[[], Any], within_s: float = 20.0, *, holds: Callable[[Any], Any] = bool, every_s: float = 0.01
) -> Any:
    """Call `look` until its result, awaited where needed, `holds`; return that. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            seen = look()
            if holds(seen := await seen if isinstance(seen, Awaitable) else seen):
                return seen
            await asyncio.sleep(every_s)


def budgets_ms(first: int = 300) -> Iterator[int]:
    """A budget, and twice as much each time: on a busy machine a short one ends before an answer has begun."""
    return (first * 2**doubled for doubled in count())
