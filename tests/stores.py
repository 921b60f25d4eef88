"""A cache's store that does its work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.cache.store import Store


@asynccontextmanager
async def at_work(store: Store) -> AsyncIterator[None]:
    """Inside, the store has loaded and runs; nothing but its end may have ended it. It is closed then."""
    await store.load()
    running = asyncio.create_task(store.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
        await store.close()
    assert running.cancelled(), running.exception()
