"""A call of the SDK that plays a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any


class ScriptedCall:
    """A scripted call: one message of its script each 10 ms; an error ends it. It counts the messages sent."""

    def __init__(self, *script: Any):
        self._script, self.over, self.sent = script, False, 0
        self.was_cancelled = False

    async def __aiter__(self) -> AsyncGenerator[Any, None]:
        for step in self._script:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:  # as gRPC's
                self.cancel()
                raise
            if isinstance(step, Exception):
                self.over = True
                raise step
            yield step
        self.over = True

    def done(self) -> bool:
        return self.over

    async def wait_for_connection(self) -> None:
        await asyncio.sleep(0)

    async def write(self, message: Any) -> None:
        await asyncio.sleep(0.005)
        self.sent += 1

    async def done_writing(self) -> None:
        await asyncio.sleep(0)

    def cancel(self) -> None:
        self.was_cancelled |= not self.over
        self.over = True

    def cancelled(self) -> bool:
        return self.was_cancelled
