"""A simulated abuser: starts calls on one connection and cancels each at once, as fast as it can."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from tests.fault.apart import MEASURED, apart
from tests.fault.asking import Asker, Outcome, asking, times_s
from tests.fault.bare_calls import Slowed
from tests.fault.bare_gateway import bare_gateway

_LISTEN_S, _MEASURED_S = 1.0, 3.0  # how long a healthy caller is listened to, and where rows are measured


def flooding(address: str) -> AbstractAsyncContextManager[list[str]]:
    """The flood is at work inside, on the gateway at `address`."""
    return apart(_flood, address)


async def _flood(address: str) -> AsyncIterator[str]:
    async with asking(address) as caller:
        yield "flooding"
        while True:
            asked = [caller.start("Never mind?", bypass=True) for _ in range(20)]
            await asyncio.sleep(0)  # they are on their way
            for stream in asked:
                stream.cancel()
            await asyncio.sleep(0.001)


async def healthy(caller: Asker) -> list[Outcome]:
    """A caller that asks one question after the other."""
    outcomes: list[Outcome] = []
    until = time.monotonic() + (_MEASURED_S if MEASURED in os.environ else _LISTEN_S)
    while time.monotonic() < until:
        outcomes.append(await caller.ask(f"Healthy {time.monotonic_ns()}?", budget_ms=5_000, bypass=True))
        await asyncio.sleep(0.002)
    return outcomes


async def in_turns(caller: Asker, address: str, rounds: int) -> tuple[list[Outcome], list[Outcome], Slowed]:
    """A healthy caller of the gateway at `address` before the flood and beside it, and one of a server of `grpc.aio`
    alone with the same flood, one after the other in each of the `rounds`."""
    here: tuple[list[Outcome], list[Outcome]] = [], []
    there: tuple[list[Outcome], list[Outcome]] = [], []
    async with bare_gateway() as bare, asking(bare) as bare_caller:
        for _ in range(rounds):
            for asker, at, (before, during) in ((bare_caller, bare, there), (caller, address, here)):
                before += await healthy(asker)
                async with flooding(at):
                    during += await healthy(asker)
    return *here, Slowed(*map(times_s, there))
