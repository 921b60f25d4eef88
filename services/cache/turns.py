"""Texts that wait for the engine's one thread. Tenants take turns at it, so the flood of one is waited for by none."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

from prometheus_client import Histogram

from services.cache.engines import Engine
from services.cache.vectors import Vector
from services.runtime.errors import Exhausted, ServiceError
from services.runtime.policy.batch import Batcher
from services.runtime.policy.fair import FairQueue, Rank

_MAX_WAITING = 1_000
_SECONDS = Histogram(
    "hedgerow_cache_embed_seconds", "Time to embed a batch of texts, without its wait for the thread.",
    buckets=(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1),
)  # fmt: skip


@dataclass(eq=False, slots=True)
class Turn:
    """A text and what comes of it. `computed` is there once its turn has nearly come."""

    tenant: str
    text: str
    rank: Rank
    outcome: asyncio.Future[Vector | None]
    weight: float = 1.0
    computed: asyncio.Future[Vector | None] | None = None


class Turns:
    """At most `_MAX_WAITING` texts wait. Two batches are taken out of turn: one runs, and one gathers meanwhile."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, "embed")
        self._batcher = Batcher("embed", self._run, engine.max_batch, max_delay_s=0)
        self._line: FairQueue[Turn] = FairQueue()
        self._numbers, self._taken = count(), 0

    def put(self, tenant: str, text: str) -> Turn:
        """Have a text embedded when it is its tenant's turn. Raises `Exhausted`."""
        turn = Turn(tenant, text, (0.0, -next(self._numbers)), asyncio.get_running_loop().create_future())
        if len(self._line) >= _MAX_WAITING:
            self._make_room(tenant)
        self._line.add(turn)
        self._take()
        return turn

    def withdraw(self, turn: Turn) -> bool:
        """Take a text back if it still waits, and say whether it did. What runs already goes on."""
        waited = self._line.remove(turn) or bool(turn.computed and self._batcher.withdraw(turn.computed))
        if waited:
            turn.outcome.cancel()
        return waited

    def stop(self) -> None:
        """End the thread, and what waits for it."""
        self._batcher.stop()
        while turn := self._line.best():
            self._line.take(turn)
            self._compute(turn)
        self._thread.shutdown()

    def _make_room(self, tenant: str) -> None:
        worst = self._line.worst()
        if self._line.crowd(worst.tenant, 1) <= self._line.crowd(tenant, 1, more=1):
            raise _crowded()
        self._line.remove(worst)
        worst.outcome.set_exception(_crowded())

    def _take(self) -> None:
        while self._taken < 2 * self._engine.max_batch and (turn := self._line.best()):
            self._line.take(turn)
            self._compute(turn)

    def _compute(self, turn: Turn) -> None:
        try:
            turn.computed = self._batcher.put(turn.text)
        except ServiceError as error:  # it was stopped
            turn.outcome.set_exception(error)
            return
        self._taken += 1
        turn.computed.add_done_callback(lambda computed: self._settle(turn, computed))

    def _settle(self, turn: Turn, computed: asyncio.Future[Vector | None]) -> None:
        self._taken -= 1
        if not (computed.cancelled() or turn.outcome.done()):
            error = computed.exception()
            turn.outcome.set_exception(error) if error else turn.outcome.set_result(computed.result())
        self._take()

    async def _run(self, texts: list[str]) -> list[Vector | None]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._time, texts)

    def _time(self, texts: list[str]) -> list[Vector | None]:
        started = time.perf_counter()
        vectors = self._engine.embed_batch(texts)
        _SECONDS.observe(time.perf_counter() - started)
        return vectors


def _crowded() -> Exhausted:
    return Exhausted(f"embed: {_MAX_WAITING} texts wait", retry_delay_s=1)
