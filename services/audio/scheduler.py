"""The scheduler: decides which piece of work the model does next.

A piece is bounded (one run of a stream; voice activity, one encoded window or one batch of a recording) and is not
interrupted; each worker runs one. Streams go before recordings. Among streams, and among recordings, start-time fair
queueing (`policy/fair.py`) applies, with the expected cost of a piece, so that frequent requests get no larger share;
recordings of one tenant share its turns. Work whose caller has left never begins; if it runs already, its result is
dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, Generic, TypeVar

from services.audio.metrics import BUSY, WAIT
from services.runtime.deadline import Clock
from services.runtime.policy.fair import FairQueue, Rank

T = TypeVar("T")
WINDOW_S = 10.0  # the window in which load is measured
_LEAST_COST_S = 0.001
_numbers = count()


@dataclass(eq=False, slots=True)
class FairMember:
    """A stream or a recording. Members of one `name` share turns. `busy_s`: the time that the model spent on it.
    `error`: why it gets no more."""

    live: bool
    name: str = field(default_factory=lambda: f"#{next(_numbers)}")
    busy_s: float = 0.0
    error: Exception | None = None

    @property
    def kind(self) -> str:
        return "stream" if self.live else "recording"


@dataclass(eq=False, slots=True)
class _WaitingWork(Generic[T]):
    """Waiting work. It meets `fair.Waiting`: a flow's weight is read with each turn, so a weight of 1/cost charges its
    cost."""

    member: FairMember
    work: Callable[[], T]
    weight: float
    rank: Rank
    result: asyncio.Future[T]
    since: float

    @property
    def tenant(self) -> str:
        return self.member.name


class BusyMeter:
    """The share of the last seconds in which a worker was busy."""

    def __init__(self, clock: Clock = time.monotonic):
        self._clock = clock
        self._pieces: deque[tuple[float, float]] = deque()  # (began, ended)
        self._lock = Lock()  # a scrape of metrics comes from another thread

    def add(self, began: float) -> None:
        """Add a piece of work that has just ended."""
        with self._lock:
            self._pieces.append((began, self._clock()))

    def share(self, running: list[float] | None = None) -> float:
        """0 to 1 for each worker. `running`: the start times of running pieces."""
        now = self._clock()
        since = now - WINDOW_S
        with self._lock:
            while self._pieces and self._pieces[0][1] <= since:
                self._pieces.popleft()
            pieces = [*self._pieces, *((began, now) for began in running or ())]
        return sum(ended - max(began, since) for began, ended in pieces) / WINDOW_S


class TranscriptionScheduler:
    """Owns the threads that the model runs on."""

    def __init__(self, workers: int = 1, clock: Clock = time.monotonic):
        self._workers, self._clock = workers, clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="model")
        self._waiting: dict[bool, FairQueue[_WaitingWork[Any]]] = {True: FairQueue(), False: FairQueue()}
        self._running: dict[_WaitingWork[Any], float] = {}  # with its start time
        self._meters = {live: BusyMeter(clock) for live in (True, False)}
        self._ranks = count()

    async def run(self, member: FairMember, work: Callable[[], T], cost_s: float) -> T:
        """Do `work` on a thread of the model when it is the turn of `member`, and return its result or raise its error.

        `cost_s` is about how long it will take; only its relation to that of others matters.
        """
        if member.error:
            raise member.error
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        weight, rank = 1 / max(cost_s, _LEAST_COST_S), (0.0, -next(self._ranks))
        turn = _WaitingWork(member, work, weight, rank, result, self._clock())
        self._waiting[member.live].add(turn)
        self._start()
        try:
            return await result
        finally:
            self._waiting[member.live].remove(turn)

    def load(self, streams_only: bool = False) -> float:
        """The share of the last 10 s in which the model was busy, 0 to 1; 1 is all workers at once."""
        running = self._running.copy()
        kinds = (True,) if streams_only else (True, False)
        shares = (
            self._meters[live].share([began for turn, began in running.items() if turn.member.live is live])
            for live in kinds
        )
        return min(1.0, sum(shares) / self._workers)

    async def close(self) -> None:
        """Wait for running work, and end the threads."""
        await asyncio.to_thread(self._pool.shutdown)

    def _start(self) -> None:
        """Give free workers to the work whose turn is next."""
        while len(self._running) < self._workers:
            queue = self._waiting[True] if self._waiting[True] else self._waiting[False]
            turn = queue.best()
            if turn is None:
                return
            queue.take(turn)
            self._begin(turn)

    def _begin(self, turn: _WaitingWork[Any]) -> None:
        began = self._running[turn] = self._clock()
        WAIT.labels(turn.member.kind).observe(began - turn.since)
        running = asyncio.get_running_loop().run_in_executor(self._pool, turn.work)
        running.add_done_callback(lambda done: self._ended(turn, done))

    def _ended(self, turn: _WaitingWork[Any], done: asyncio.Future[Any]) -> None:
        began = self._running.pop(turn)
        self._meters[turn.member.live].add(began)
        took_s = self._clock() - began
        turn.member.busy_s += took_s
        BUSY.labels(turn.member.kind).inc(took_s)
        error = done.exception()
        if not turn.result.done():
            turn.result.set_exception(error) if error else turn.result.set_result(done.result())
        self._start()
