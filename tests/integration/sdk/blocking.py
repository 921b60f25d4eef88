"""The SDK's blocking clients, which a test calls in a thread of its own: the scripted services need its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

C = TypeVar("C")
T = TypeVar("T")


async def blocking(client: AbstractContextManager[C], use: Callable[[C], T]) -> T:
    """The result of `use`; the client is closed then."""

    def run() -> T:
        with client as opened:
            return use(opened)

    return await asyncio.to_thread(run)
