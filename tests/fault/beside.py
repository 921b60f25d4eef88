"""Another tenant's calls beside a fault: all of them must be answered."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.fault.apart import MEASURED
from tests.fault.asking import Asker, Outcome, times_s
from tests.fault.bare_calls import Slowed
from tests.fault.report import Row

_PAUSE_S = 0.01
_BEFORE_S = 5.0 if MEASURED in os.environ else 0.25  # some 300 calls: the p99 of twenty would be the slowest of them
_BUDGET_MS = 20_000  # a busy machine may be slow: that is a figure, and no failure


async def honest_before(caller: Asker) -> list[Outcome]:
    """The caller's questions while nothing else is asked, in the same rhythm as beside the fault. Without the first
    ones, which open connections."""
    await honest_for(caller, _BEFORE_S / 5)
    return await honest_for(caller, _BEFORE_S)


async def honest_for(caller: Asker, seconds: float) -> list[Outcome]:
    """One question after the other for so many seconds, with a pause after each."""
    outcomes, until = list[Outcome](), time.monotonic() + seconds
    while time.monotonic() < until:
        outcomes.append(await _ask(caller))
        await asyncio.sleep(_PAUSE_S)
    return outcomes


@asynccontextmanager
async def asking_beside(caller: Asker, least: int = 10) -> AsyncIterator[list[Outcome]]:
    """The caller asks one question after the other inside, and `least` of them in any case; all have ended after it."""
    outcomes, over = list[Outcome](), False

    async def ask() -> None:
        while not over or len(outcomes) < least:
            outcomes.append(await _ask(caller))
            await asyncio.sleep(_PAUSE_S)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        try:
            yield outcomes
        finally:
            over = True


def check(row: Row, before: list[Outcome], during: list[Outcome], bare: Slowed | None = None) -> None:
    """All were answered; how much longer they took goes into the row, and how much longer at a `bare` server."""
    row.count(*during)
    assert [each for each in (*before, *during) if not each.whole] == []
    # Those that ask so much beside share the processor with it, and its client with their clients.
    row.slowed("another tenant's p99", times_s(before), times_s(during), slack=50, bare=bare)


async def _ask(caller: Asker) -> Outcome:
    return await caller.ask(f"Honest {time.monotonic_ns()}?", budget_ms=_BUDGET_MS)
