"""Work on a request that may be large, beside the event loop.

One thread does it all: several would keep the interpreter from the event loop for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
LARGE_BYTES = 65_536  # of small objects: some 10 ms. A long text costs next to nothing
_OBJECT_BYTES = 64
_thread = ThreadPoolExecutor(1, "large requests")


def size_of(objects: int) -> int:
    """The size of so many JSON objects, or messages of a request, for `aside`: their number counts, not their texts."""
    return objects * _OBJECT_BYTES


def size_in(body: bytes) -> int:
    """The same of a JSON body."""
    return size_of(body.count(b"{"))


async def aside(size: int, work: Callable[[], T]) -> T:
    """The result of `work` on about `size` bytes, from the thread where the event loop would notice it."""
    if size <= LARGE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
