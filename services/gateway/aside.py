"""Work on a request that may be large, beside the event loop.

One thread does it all: several would keep the interpreter from the event loop for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
LARGE_BYTES = 65_536  # of a JSON body with many values: some 20 ms
_thread = ThreadPoolExecutor(1, "large requests")


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of `work` on about `size` bytes, from the thread where the event loop would notice it."""
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
