"""Ends a request whose client leaves, or whose answer is silent for too long.

A client that leaves closes its connection, which the server reports where more of the request is read. So a task
always reads, streaming or not, from the moment the request has come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

from starlette.types import Receive

from services.gateway.http.errors import SilenceTimeout


class Left(Exception):
    """The client has gone: no reply can be sent."""


class ConnectionWatch:
    """Inside, the task ends with `Left` when the client leaves, and with `SilenceTimeout` when nothing more `came` for
    `silence_s` after the first text (0: never). With a `beat`, that is called after each `heartbeat_s` in which nothing
    was `sent`."""

    def __init__(
        self,
        receive: Receive,
        silence_s: float,
        heartbeat_s: float,
        beat: Callable[[], Coroutine[Any, Any, None]] | None,
    ):
        self._receive, self._silence_s, self._heartbeat_s, self._beat = receive, silence_s, heartbeat_s, beat
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._why: Exception | None = None
        self._came_at: float | None = None  # the last text
        self._sent_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._working: set[asyncio.Task[None]] = set()

    def came(self) -> None:
        """There was text."""
        is_first, self._came_at = self._came_at is None, self._loop.time()
        if is_first:
            self._set_timer()

    def sent(self, *, last: bool = False) -> None:
        """Something is sent. With the `last` of a reply the watch ends: the server closes a connection that is not read
        from, and an answer that is over is not silent."""
        self._sent_at = self._loop.time()
        if last:
            self._stop()

    def __enter__(self) -> ConnectionWatch:
        self._start(self._until_left())
        self._set_timer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()
        if self._why and self._task and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise self._why from None

    def _stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        for task in self._working:
            task.cancel()

    async def _until_left(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(Left())

    def _end(self, why: Exception) -> None:
        if self._why is None and self._task:
            self._why = why
            self._task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _set_timer(self) -> None:
        """Look again when a sign of life is due, or a silence after the first text may be too long."""
        if self._timer:
            self._timer.cancel()
        due = [self._sent_at + self._heartbeat_s] if self._beat else []
        if self._silence_s and self._came_at is not None:
            due.append(self._came_at + self._silence_s)
        self._timer = self._loop.call_at(min(due), self._check_times) if due else None

    def _check_times(self) -> None:
        now = self._loop.time()
        if self._silence_s and self._came_at is not None and now >= self._came_at + self._silence_s:
            self._end(SilenceTimeout(f"no more text for {self._silence_s * 1000:.0f} ms"))
            return
        if self._beat and now >= self._sent_at + self._heartbeat_s:
            self._sent_at = now
            self._start(self._beat())
        self._set_timer()
