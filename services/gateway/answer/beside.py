"""The stages of one answer that work beside others, each in a task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.runtime.errors import ServiceError


@dataclass(slots=True)
class BesideWork:
    """`working`: their tasks. `stirred` is set when one of them has ended, or another stage may be ready."""

    working: set[asyncio.Task[None]] = field(default_factory=set)
    stirred: asyncio.Event = field(default_factory=asyncio.Event)

    async def done(self, work: asyncio.Task[None]) -> None:
        """Wait for `work`, one of them. What fails beside it ends it at once: no caller waits for the rest of a long
        recording whose picture was refused."""
        while work in self.working:
            done, self.working = await asyncio.wait(self.working, return_when=asyncio.FIRST_COMPLETED)
            try:
                for each in done:
                    each.result()
            except ServiceError:
                await self._stop()
                raise

    async def _stop(self) -> None:
        for each in self.working:
            each.cancel()
        if self.working:
            await asyncio.wait(self.working)
