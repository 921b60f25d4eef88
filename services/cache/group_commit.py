"""Group commit: writes to the database, off the event loop, in the order they were asked for, many to a commit.

A commit costs a flush of the disk whatever is in it. Writes that arrive while one runs go into the next together, so
concurrent stores cost about as much as one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from services.cache.database import Database, Statement
from services.cache.errors import NotKept
from services.cache.no_database import NoDatabase
from services.runtime.deadline import Clock
from services.runtime.futures import retrieve
from services.runtime.line_limit import LineLimit

T = TypeVar("T")
_log = logging.getLogger(__name__)


class GroupCommit:
    """The only writer of a database. `run()` must be running."""

    def __init__(self, database: Database | NoDatabase, clock: Clock = time.monotonic):
        self._database, self._lines = database, LineLimit(clock)
        self._thread = ThreadPoolExecutor(1, "commit")
        self._waiting: list[tuple[Statement, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    def append(self, statement: Statement) -> asyncio.Future[None]:
        """Queue a statement. The future is done when it is on disk, and raises `NotKept` when the disk refused."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieve)  # no caller waits for that of an eviction; its failure is logged here
        self._waiting.append((statement, future))
        self._wake.set()
        return future

    async def run(self) -> None:
        """Commit what waits, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.flush()

    async def flush(self) -> None:
        """Commit what waits now."""
        batch, self._waiting = self._waiting, []
        error: NotKept | None = None
        try:
            await self._on_thread(lambda: self._database.apply(statement for statement, _ in batch))
        except Exception as cause:  # also what a statement does to SQLite's driver: the writer goes on
            if (left_out := self._lines.take()) is not None:
                text = "database %s: %d writes failed, and %d times before since the last line: %s"
                _log.error(text, self._database.path, len(batch), left_out, cause)
            error = NotKept("the cache could not write to its disk")
        for _, future in batch:
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

    async def close(self) -> None:
        """Commit what waits, and close the database. `run()` must have ended."""
        await self.flush()
        await self._on_thread(self._database.close)
        self._thread.shutdown()

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
