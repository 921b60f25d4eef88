"""Threads that tenants use in turn, so that no tenant waits for the load of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Any, TypeVar

from services.runtime.errors import Exhausted
from services.runtime.policy.fair import FairQueue, Rank

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Work:
    tenant: str
    rank: Rank
    call: Callable[[], Any]
    outcome: Future[Any]
    weight: float = 1.0


class FairThread:
    """Runs work on one thread, or on so many `threads`, for any event loop. `max_waiting` may wait for it."""

    def __init__(self, name: str, max_waiting: int, initializer: Callable[[], None] | None = None, *, threads: int = 1):
        self._name, self._max_waiting = name, max_waiting
        self._threads = ThreadPoolExecutor(threads, name, initializer)
        self._waiting, self._numbers, self._lock = FairQueue[_Work](), count(), Lock()

    async def run(self, tenant: str, call: Callable[[], T]) -> T:
        """The result of `call`, which continues without its caller once it has begun. Raises `Exhausted` if too many
        wait, most of them of this tenant."""
        work = _Work(tenant, (0.0, -next(self._numbers)), call, Future())
        with self._lock:
            if len(self._waiting) >= self._max_waiting:
                self._make_room(tenant)
            self._waiting.add(work)
        self._threads.submit(self._next)
        try:
            result: T = await asyncio.wrap_future(work.outcome)
        finally:
            with self._lock:
                self._waiting.remove(work)  # unless it has begun
            del work, call  # which an error would keep, and they the error, until Python looks for garbage
        return result

    def close(self) -> None:
        """End the threads. No work may wait for them."""
        self._threads.shutdown()

    def _make_room(self, tenant: str) -> None:
        """Drop work of the tenant with the most waiting. Raises `Exhausted` where that is `tenant`."""
        worst = self._waiting.worst()
        if self._waiting.load_of(worst.tenant, 1) <= self._waiting.load_of(tenant, 1, more=1):
            raise self._crowded()
        self._waiting.remove(worst)
        if worst.outcome.set_running_or_notify_cancel():
            worst.outcome.set_exception(self._crowded())

    def _crowded(self) -> Exhausted:
        return Exhausted(f"{self._name}: {self._max_waiting} wait", retry_delay_s=1)

    def _next(self) -> None:
        """Do the work whose turn it is, on a thread. There is one call of this for each work that came."""
        with self._lock:
            if work := self._waiting.best():
                self._waiting.take(work)
        if work is None or not work.outcome.set_running_or_notify_cancel():
            return
        try:
            work.outcome.set_result(work.call())
        except BaseException as error:
            work.outcome.set_exception(error)
        del work
