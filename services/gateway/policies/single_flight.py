"""Single-flight: equal requests at the same time share one execution, and each gets all of its items.

An execution is a task of its own. The first caller has no special part: a caller that leaves only stops reading, and
when the last one has left, the execution is stopped. Items stay until the end, so that a late reader gets them from
the beginning. As Go's `golang.org/x/sync/singleflight`, for streams.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator
from copy import copy
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from services.runtime.errors import ServiceError, TooLate, Unavailable

_AT_ONCE = 32  # readers that are woken in one turn of the event loop: each then sends its message
K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Flight(Generic[T]):
    """A shared execution. It passes its items to `add`; `over` and `error` show how it ended. An execution without
    readers is cancelled, or stopped by `stop` if that is set."""

    def __init__(self) -> None:
        self.items: list[T] = []
        self.over = False
        self.error: Exception | None = None
        self.stop: Callable[[], None] | None = None
        self._readers: dict[FlightReader[T], None] = {}  # the first first
        self._task: asyncio.Task[None] | None = None

    def start(self, execution: Coroutine[Any, Any, None]) -> None:
        """Start the execution. At least one reader must have subscribed."""
        self._task = asyncio.create_task(self._run(execution))

    def subscribe(self, within_s: float, seen: int = 0) -> FlightReader[T]:
        """Read along, for `within_s` at the most, what comes after the first `seen` items."""
        reader = FlightReader(self, within_s, seen)
        self._readers[reader] = None
        return reader

    def unsubscribe(self, reader: FlightReader[T]) -> None:
        if reader in self._readers:
            del self._readers[reader]
            if not self._readers and self._task and not self.over:
                # At once, and not when the task runs next: a reader that comes in between must not get an empty end.
                self.over, self.error = True, Unavailable("cancelled: the last reader has left")
                # After its first step: a task that is cancelled before that runs none of its `finally` blocks.
                self._task.get_loop().call_soon(self._stop, self._task)

    def add(self, item: T) -> None:
        self.items.append(item)
        self._wake()

    def end(self) -> None:
        """End the items; the execution may still have work to do."""
        self.over = True
        self._wake()

    def _wake(self, readers: Iterator[FlightReader[T]] | None = None) -> None:
        """Wake these readers, a few in each turn of the event loop; None: all there are."""
        if readers is None:
            readers = iter(tuple(self._readers))
        woken = list(islice(readers, _AT_ONCE))
        for reader in woken:
            reader.wake()
        if len(woken) == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._wake, readers)

    def _stop(self, task: asyncio.Task[None]) -> None:
        (self.stop or task.cancel)()

    async def _run(self, execution: Coroutine[Any, Any, None]) -> None:
        try:
            await execution
        except asyncio.CancelledError:
            self.error = self.error or Unavailable("cancelled")
            raise
        except Exception as error:  # for the readers
            self.error = error
        finally:
            self.end()


class FlightReader(Generic[T]):
    """One request's view of a flight. `close` must be called at the end."""

    def __init__(self, flight: Flight[T], within_s: float, seen: int = 0):
        self._flight, self._next, self._late, self._loop = flight, seen, False, asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None  # of `take`; an event would cost five more Python calls
        self._timer = self._loop.call_later(within_s, self._end) if within_s < float("inf") else None

    def wake(self) -> None:
        """Have `take` look again."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self) -> list[T]:
        """All new items, at least one; empty after the last. Raises the execution's error, and `TooLate` at this
        reader's own deadline."""
        while not self._has_changed():
            self._waiting = self._loop.create_future()
            await self._waiting
        items = self._flight.items[self._next :]
        self._next += len(items)
        if not items:
            if error := self._flight.error:
                raise copy(error) if isinstance(error, ServiceError) else error  # each writes into its own
            if not self._flight.over:
                raise TooLate("the deadline has passed")
        return items

    async def take_and_drop(self) -> list[T]:
        """`take`, for the only reader: the flight keeps nothing of what was read."""
        items = await self.take()
        del self._flight.items[: self._next]
        self._next = 0
        return items

    def close(self) -> None:
        """Idempotent."""
        if self._timer:
            self._timer.cancel()
        self._flight.unsubscribe(self)

    def _has_changed(self) -> bool:
        return self._next < len(self._flight.items) or self._flight.over or self._late

    def _end(self) -> None:
        self._late = True
        self.wake()


class Execution(Protocol):
    """An execution under way."""

    @property
    def over(self) -> bool: ...


V = TypeVar("V", bound=Execution)


class SingleFlight(Generic[K, V]):
    """The executions under way, by what they are for."""

    def __init__(self) -> None:
        self._executions: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._executions)

    def get(self, key: K) -> V | None:
        """An execution under way, to join: not one that has ended, or is about to, because its last reader has left."""
        found = self._executions.get(key)
        return None if found is None or found.over else found

    def track(self, key: K, entry: V, execution: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """`execution`, listed under `key` from now until its end. One that was listed there goes on unlisted."""
        self._executions[key] = entry
        return self._tracked(key, entry, execution)

    async def _tracked(self, key: K, entry: V, execution: Coroutine[Any, Any, None]) -> None:
        try:
            await execution
        finally:
            if self._executions.get(key) is entry:
                del self._executions[key]
