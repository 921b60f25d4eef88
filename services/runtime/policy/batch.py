"""A dynamic batcher: gathers single items and gives them to an engine together.

The terms are Triton's (https://github.com/triton-inference-server/server/blob/main/docs/user_guide/batcher.md): a batch
starts when it has the largest or a preferred size, or when its first item has waited for the longest delay. While a
batch runs the next one gathers, so under load batches grow without any delay. A caller that knows that nothing else is
on its way can say so; then no item waits. Tenants take turns at the places of a batch, and a full queue drops an item
of the tenant that has the most in it (`fair.py`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

from prometheus_client import Histogram

from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, TooLate, Unavailable
from services.runtime.policy.fair import FairQueue, Rank

T = TypeVar("T")
R = TypeVar("R")
_NONE_IS_DUE = float("-inf")
_SIZE = Histogram("hedgerow_batch_size", "Items in a batch.", ["batcher"], buckets=(1, 2, 4, 8, 16, 32, 64, 128))


@dataclass(eq=False, slots=True)
class _Item(Generic[T, R]):
    value: T
    tenant: str
    deadline: Deadline
    due: float  # when it has waited long enough, in the event loop's time
    rank: Rank
    future: asyncio.Future[R]
    weight: float = 1.0


class Batcher(Generic[T, R]):
    """Runs items through `run`, which returns one result for each, in their order. Used on one event loop.

    Up to `max_size` items run together, and one batch at a time. The first item of a batch waits for `max_delay_s` at
    most while the engine is idle; with 0, for what is submitted in the same turn of the event loop. An idle engine
    starts at once with any of the `preferred` sizes, and with any size while `more_to_come` says no. `max_queue` items
    may wait.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[list[T]], Awaitable[list[R]]],
        max_size: int,
        max_delay_s: float,
        preferred: tuple[int, ...] = (),
        max_queue: int = 1_000,
        more_to_come: Callable[[], bool] = lambda: True,
    ):
        self._name, self._run = name, run
        self._max_size, self._max_delay_s, self._max_queue = max_size, max_delay_s, max_queue
        self._more_to_come = more_to_come
        self._preferred = sorted((size for size in preferred if size < max_size), reverse=True)
        self._waiting: OrderedDict[asyncio.Future[R], _Item[T, R]] = OrderedDict()  # as they came
        self._turns, self._numbers = FairQueue[_Item[T, R]](), count()  # the same items
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._batch_s = 0.0  # how long the last batch took
        self._stopped = False
        self._observe = _SIZE.labels(name).observe

    async def submit(self, item: T, deadline: Deadline | None = None, tenant: str = "") -> R:
        """The item's result. An item that still waits when its caller is cancelled, or its time ends, never runs."""
        deadline = deadline or Deadline.never()
        future = self.put(item, deadline, tenant)
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(None if remaining == float("inf") else remaining) as limit:
                return await future
        except TimeoutError:
            if limit.expired():
                raise self._too_late() from None
            raise  # the engine's own
        finally:
            self.withdraw(future)

    def put(self, item: T, deadline: Deadline | None = None, tenant: str = "") -> asyncio.Future[R]:
        """Queue an item for callers that share its result; they `withdraw` it when the last one leaves."""
        if self._stopped:
            raise self._gone()
        if len(self._waiting) >= self._max_queue:
            self._make_room(tenant)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        due, rank = loop.time() + self._max_delay_s, (0.0, -next(self._numbers))
        turn = _Item(item, tenant, deadline or Deadline.never(), due, rank, future)
        self._waiting[future] = turn
        self._turns.add(turn)
        self._start(_NONE_IS_DUE)
        return future

    def withdraw(self, future: asyncio.Future[R]) -> bool:
        """Remove an item that still waits, and return whether it did. A running item continues."""
        turn = self._waiting.pop(future, None)
        if turn is None:
            return False
        self._turns.remove(turn)
        future.cancel()
        return True

    def no_more_to_come(self) -> None:
        """Look again: what was on its way will not come."""
        self._start(_NONE_IS_DUE)

    def stop(self) -> None:
        """Refuse waiting and new items. Running items continue."""
        self._stopped = True
        if self._timer:
            self._timer.cancel()
        _fail(self._waiting, self._gone())
        self._waiting.clear()
        self._turns = FairQueue()

    async def close(self) -> None:
        """Stop, and wait for running items."""
        self.stop()
        if self._worker:
            await asyncio.wait({self._worker})

    def _make_room(self, tenant: str) -> None:
        """Refuse the last item of the tenant with the most, or the new one of `tenant` where none has more."""
        worst = self._turns.worst()
        if self._turns.load_of(worst.tenant, 1) <= self._turns.load_of(tenant, 1, more=1):
            raise self._full()
        self._turns.remove(worst)
        del self._waiting[worst.future]
        _fail([worst.future], self._full())

    def _start(self, now: float) -> None:
        """Put an idle worker to work, or come back when the first item is due."""
        if self._worker:
            return
        loop = asyncio.get_running_loop()
        if batch := self._next(now):
            self._worker = loop.create_task(self._work(batch))
            self._worker.add_done_callback(self._rest)
        elif self._waiting and not self._timer:
            due = self._first().due
            self._timer = loop.call_at(due, self._ring, due)

    def _ring(self, due: float) -> None:
        # Timers may ring a little early, so this goes by the time that was set. The item may be gone by now.
        self._timer = None
        self._start(due)

    def _next(self, now: float) -> dict[asyncio.Future[R], T]:
        """The batch that may run now; empty when nothing is ready."""
        batch: dict[asyncio.Future[R], T] = {}
        while not batch and (size := self._ready(now)):
            while len(batch) < size and (item := self._turns.best()):
                self._turns.take(item)
                del self._waiting[item.future]
                if item.deadline.remaining():
                    batch[item.future] = item.value
                else:
                    _fail([item.future], self._too_late())
        return batch

    def _ready(self, now: float) -> int:
        """The number of waiting items that may run together now."""
        waiting = len(self._waiting)
        if waiting >= self._max_size:
            return self._max_size
        if waiting and (self._first().due <= now or not self._more_to_come()):
            return waiting
        return next((size for size in self._preferred if size <= waiting), 0)

    def _first(self) -> _Item[T, R]:
        return next(iter(self._waiting.values()))

    async def _work(self, batch: dict[asyncio.Future[R], T]) -> None:
        """Run batches, one after the other, while there are any."""
        loop = asyncio.get_running_loop()
        while batch:
            started = loop.time()
            self._observe(len(batch))
            await self._settle(batch)
            now = loop.time()
            self._batch_s = now - started
            batch = self._next(now)

    async def _settle(self, batch: dict[asyncio.Future[R], T]) -> None:
        try:
            results = await self._run(list(batch.values()))
            for future, result in list(zip(batch, results, strict=True)):
                if not future.done():
                    future.set_result(result)
        except asyncio.CancelledError:
            _fail(batch, self._gone())
            raise
        except Exception as error:
            _fail(batch, error)

    def _rest(self, worker: asyncio.Task[None]) -> None:
        self._worker = None
        if worker.cancelled():  # the event loop or the engine ends
            self.stop()
        else:
            self._start(asyncio.get_running_loop().time())

    def _full(self) -> Exhausted:
        delay_s = self._batch_s * self._max_queue / self._max_size
        return Exhausted(f"{self._name}: {len(self._waiting)} of {self._max_queue} waiting", retry_delay_s=delay_s)

    def _too_late(self) -> TooLate:
        return TooLate(f"{self._name}: the deadline passed before there was a result")

    def _gone(self) -> Unavailable:
        return Unavailable(f"{self._name}: stopped")


def _fail(futures: Iterable[asyncio.Future[Any]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
