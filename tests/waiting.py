"""Waiting for what another task or process is about to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def until(condition: Callable[[], Awaitable[Any] | Any], within_s: float = 20.0) -> None:
    """Return when the condition holds. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.01)
