"""A simulated abuser, in a process of its own so that it takes no time from the caller it is measured against.

`python -m tests.fault.flood HOST:PORT [bare]`: starts calls on one connection and cancels each at once, as fast as it
can, until it is ended; with `bare`, of a `bench.bare_relay` in the place of a gateway. It prints a line once it has
begun. It gives way to every other process of the machine: what counts is what its calls cost who serves them, not that
it takes a core from them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from tests.fault.asking import asking
from tests.fault.bare import asking_bare


async def flood(address: str, bare: bool) -> None:
    async with AsyncExitStack() as stack:
        start: Callable[[str], Any]
        if bare:
            start = (await stack.enter_async_context(asking_bare(address))).start
        else:
            start = partial((await stack.enter_async_context(asking(address))).start, bypass=True)
        print("flooding", flush=True)
        while True:
            asked = [start("Never mind?") for _ in range(20)]
            await asyncio.sleep(0)  # they are on their way
            for stream in asked:
                stream.cancel()
            await asyncio.sleep(0.001)


@asynccontextmanager
async def abusing(module: str, *told: str) -> AsyncIterator[None]:
    """An abuser, a process of its own that says when it has begun, is at work inside."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *told, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 20)
        yield
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()


def flooding(address: str, *, bare: bool = False) -> AbstractAsyncContextManager[None]:
    """The flood is at work inside."""
    return abusing("tests.fault.flood", address, *(["bare"] if bare else []))


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(flood(sys.argv[1], sys.argv[2:] == ["bare"]))
