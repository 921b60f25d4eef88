"""What both faces of the simulated provider share: who is let in, when each token is due, and the counts.

Nothing here generates: it waits for as long as its profile says. With `slots`, at most so many calls run, and the
others wait inside, first come first served, as they do in an engine that batches.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from bench.jagged.latency import Cliff, Failures, Profile
from bench.jagged.tally import Tally
from services.runtime.deadline import Clock
from services.runtime.errors import Exhausted, ServiceError, Unavailable

PROMPT_TOKENS = 8  # of every question, whatever it says


class SimulatedEngine:
    """Answers by `profile`. The same seed gives the n-th call the same times."""

    def __init__(self, profile: Profile, slots: int = 0, seed: int = 0, clock: Clock = time.monotonic):
        self.tally = Tally()
        self._profile, self._clock, self._rng = profile, clock, random.Random(seed)
        self._slots = asyncio.Semaphore(slots or sys.maxsize)  # lets the longest waiting in first
        self._cliff = _Edge(profile.cliff or Cliff())
        self._last = float("-inf")

    @asynccontextmanager
    async def call(self) -> AsyncIterator[float]:
        """A call from when it is let in to its end; gives its wait for a slot, in milliseconds.

        Raises Exhausted or Unavailable where it is not let in.
        """
        arrived = self._clock()
        self._refuse(arrived)
        self.tally.started += 1
        self.tally.prompt_tokens += PROMPT_TOKENS
        try:
            async with self._slot():
                yield (self._clock() - arrived) * 1000
            self.tally.finished += 1
        except ServiceError:
            self.tally.failed += 1
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self.tally.cancelled += 1
            raise

    async def until(self, due: float) -> None:
        """Return at `due`, or at once where that is over."""
        if (wait_s := due - self._clock()) > 0:
            await asyncio.sleep(wait_s)

    def schedule(self, tokens: int) -> Iterator[float]:
        """When each token of an answer that starts now is due, on the clock; raises Unavailable where it breaks off."""
        due, each_s = self._clock() + self._first_s(), self._profile.each_ms / 1000
        stalls, failures = self._profile.stalls, self._profile.failures
        stall = self._one_of(tokens) if stalls and self._rng.random() < stalls.share else 0
        broken = self._one_of(tokens) if failures and self._rng.random() < failures.interrupted_share else 0
        for number in range(tokens):
            if number and number == broken:
                raise Unavailable("simulated: the answer breaks off")
            self.tally.completion_tokens += 1
            if number:
                due += each_s
            if stalls and number and number == stall:
                due += stalls.lasts_ms / 1000
            yield due

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self.tally.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.tally.waiting -= 1
        self.tally.running += 1
        try:
            yield
        finally:
            self.tally.running -= 1
            self._slots.release()

    def _one_of(self, tokens: int) -> int:
        """A token, but not the first; 0 where there is no other."""
        return self._rng.randrange(1, tokens) if tokens > 1 else 0

    def _first_s(self) -> float:
        now, slow, cold = self._clock(), self._profile.slow_periods, self._profile.cold_start
        first_ms = self._profile.first.draw_ms(self._rng)
        if slow:
            first_ms *= slow.factor_at(now)
        if cold and now - self._last > cold.after_idle_s:
            first_ms += cold.extra_ms
        self._last = now
        return first_ms / 1000

    def _refuse(self, now: float) -> None:
        try:
            self._cliff.check(now, self.tally.running + self.tally.waiting)
            _fail_by_chance(self._profile.failures, self._rng)
        except ServiceError:
            self.tally.refused += 1
            raise


class _Edge:
    """Where a cliff's limits are."""

    def __init__(self, cliff: Cliff):
        self._cliff = cliff
        self._accepted: deque[float] = deque()  # times within the last second

    def check(self, now: float, in_flight: int) -> None:
        cliff = self._cliff
        while self._accepted and self._accepted[0] <= now - 1:
            self._accepted.popleft()
        if cliff.per_s and len(self._accepted) >= cliff.per_s:
            raise _exhausted(f"{cliff.per_s} calls a second", cliff.retry_after_ms)
        if cliff.concurrent and in_flight >= cliff.concurrent:
            raise _exhausted(f"{cliff.concurrent} calls at once", cliff.retry_after_ms)
        if cliff.per_s:
            self._accepted.append(now)


def _fail_by_chance(failures: Failures | None, rng: random.Random) -> None:
    if failures:
        chance = rng.random()
        if chance < failures.unavailable_share:
            raise Unavailable("simulated: unavailable")
        if chance < failures.unavailable_share + failures.exhausted_share:
            raise _exhausted("by chance", failures.retry_after_ms)


def _exhausted(limit: str, retry_after_ms: float) -> Exhausted:
    return Exhausted(f"simulated: over its limit, {limit}", retry_delay_s=retry_after_ms / 1000)
