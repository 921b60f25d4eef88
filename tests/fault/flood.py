"""A simulated abuser, in a process of its own so that it takes no time from the caller it is measured against.

`python -m tests.fault.flood HOST:PORT`: starts calls on one connection and cancels each at once, as fast as it can,
until it is ended. It prints a line once it has begun. It gives way to every other process of the machine: what counts
is what its calls cost the gateway, not that it takes a core from it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from launcher.parent_death_signal import killed_with_parent
from tests.fault.asking import asking


async def flood(address: str) -> None:
    async with asking(address) as caller:
        print("flooding", flush=True)
        while True:
            asked = [caller.start("Never mind?", bypass=True) for _ in range(20)]
            await asyncio.sleep(0)  # they are on their way
            for stream in asked:
                stream.cancel()
            await asyncio.sleep(0.001)


@asynccontextmanager
async def abusing(module: str, *told: str) -> AsyncIterator[None]:
    """An abuser, a process of its own that says when it has begun, is at work inside."""
    program = killed_with_parent([sys.executable, "-m", module, *told])
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 20)
        yield
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()


def flooding(address: str) -> AbstractAsyncContextManager[None]:
    """The flood is at work inside."""
    return abusing("tests.fault.flood", address)


def give_way() -> None:
    """To every other process: where Linux shares cores by sessions, the nice value of a session counts (sched(7))."""
    os.nice(19)
    if (session := Path("/proc/self/autogroup")).exists():
        session.write_text("19")


if __name__ == "__main__":
    give_way()
    asyncio.run(flood(sys.argv[1]))
