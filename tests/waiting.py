"""Waiting for what another task or process is about to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any

_LONGEST_PAUSE_S = 0.1


async def until(
    look: Callable[[], Any], within_s: float = 20.0, *, holds: Callable[[Any], Any] = bool, every_s: float = 0.01
) -> Any:
    """Call `look` until its result, awaited where needed, `holds`; return that. Raises TimeoutError.

    The pause between two calls is `every_s`, or a twentieth of the time waited so far, at most `_LONGEST_PAUSE_S`: a
    look may be an HTTP request or a command, which takes the processor from what it waits for."""
    now = asyncio.get_running_loop().time
    began = now()
    async with asyncio.timeout(within_s):
        while True:
            seen = look()
            if holds(seen := await seen if isinstance(seen, Awaitable) else seen):
                return seen
            await asyncio.sleep(max(every_s, min((now() - began) / 20, _LONGEST_PAUSE_S)))


def budgets_ms(first: int = 300) -> Iterator[int]:
    """A budget, and twice as much each time: on a busy machine a short one ends before an answer has begun."""
    return (first * 2**doubled for doubled in count())
