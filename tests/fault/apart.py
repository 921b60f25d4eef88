"""Work of a test in a process of its own, so that it takes no time from the caller that the test measures."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from launcher.parent_death_signal import die_with_parent
from tests.forked import FORKS

T = TypeVar("T")
MEASURED = "HEDGEROW_FAULTS_MEASURED"  # set in the environment of a run that measures


class _Failed(str):
    """How the work failed: its traceback."""


@asynccontextmanager
async def apart(
    work: Callable[..., AsyncIterator[T]], *arguments: Any, gives_way: bool = True
) -> AsyncIterator[list[T]]:
    """`work(*arguments)` runs inside, until it is left; gives the list of what it has yielded, which grows.

    `work` is a function of a module, and yields once it has begun at the latest: `apart` waits for that. Its arguments
    and its results are pickled. An exception of it fails the test. Where rows are measured and `gives_way` is true, it
    runs at the lowest priority: the cost of its calls to the mesh is measured, not the core that it takes.
    """
    here, there = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=_run, args=(there, work, arguments, gives_way), daemon=True)
    process.start()
    there.close()
    yielded, begun, failed = list[T](), asyncio.Event(), list[_Failed]()
    loop = asyncio.get_running_loop()

    def receive() -> None:
        try:
            while here.poll():
                received = here.recv()
                (failed if isinstance(received, _Failed) else yielded).append(received)
                begun.set()
        except EOFError:
            loop.remove_reader(here.fileno())
            begun.set()

    loop.add_reader(here.fileno(), receive)
    try:
        await asyncio.wait_for(begun.wait(), 60)
        assert not failed, failed[0]
        yield yielded
        receive()
        assert not failed, failed[0]
    finally:
        loop.remove_reader(here.fileno())
        process.kill()
        await asyncio.to_thread(process.join)
        here.close()


def _run(
    there: Connection, work: Callable[..., AsyncIterator[Any]], arguments: tuple[Any, ...], gives_way: bool
) -> None:
    async def all_of_it() -> None:
        async for each in work(*arguments):
            there.send(each)

    os.setsid()
    die_with_parent(os.getppid())
    if gives_way and MEASURED in os.environ:
        give_way()
    try:
        asyncio.run(all_of_it())
    except BaseException:
        there.send(_Failed(traceback.format_exc()))
        raise


def give_way() -> None:
    """To every other process: where Linux shares cores by sessions, the nice value of a session counts (sched(7))."""
    os.nice(19)
    if (session := Path("/proc/self/autogroup")).exists():
        session.write_text("19")
