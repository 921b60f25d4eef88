"""A simulated model engine: how many calls run at once, when each token is due, and the counts.

Nothing here generates: it waits for as long as its profile says. With `slots`, at most so many calls run, and the
others wait inside, first come first served, as they do in an engine that batches.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from bench.jagged.latency import Profile
from services.runtime.deadline import Clock
from services.runtime.errors import ServiceError

_PREFIX = "simulated_provider_"


@dataclass(slots=True)
class Tally:
    """Counts since the start; `running` and `waiting` are of now."""

    started: int = 0  # calls let in
    finished: int = 0  # to their end
    cancelled: int = 0
    failed: int = 0  # after they were let in
    running: int = 0
    waiting: int = 0  # for a slot
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))


class TallyCollector(Collector):
    """Shows a tally among the process's Prometheus metrics. Plain counts are cheaper to keep than counters."""

    def __init__(self, tally: Tally):
        self._tally = tally

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for each in fields(self._tally):
            yield GaugeMetricFamily(_PREFIX + each.name, "Of the simulated provider.", getattr(self._tally, each.name))


async def read_tally(addresses: Sequence[str]) -> Tally:
    """The sum of the tallies of the processes whose metrics are at `addresses` (host:port)."""
    tallies = await asyncio.gather(*(asyncio.to_thread(_read, address) for address in addresses))
    return sum(tallies, Tally())


def _read(address: str) -> Tally:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
        families = list(text_string_to_metric_families(reply.read().decode()))
    own = (family for family in families if family.name.startswith(_PREFIX))
    return Tally(**{family.name.removeprefix(_PREFIX): int(family.samples[0].value) for family in own})


PROMPT_TOKENS = 8  # of every question, whatever it says


class SimulatedEngine:
    """Answers by `profile`. The same seed gives the n-th call the same times."""

    def __init__(self, profile: Profile, slots: int = 0, seed: int = 0, clock: Clock = time.monotonic):
        self.tally = Tally()
        self._profile, self._clock, self._rng = profile, clock, random.Random(seed)
        self._slots = asyncio.Semaphore(slots or sys.maxsize)  # lets the longest waiting in first

    @asynccontextmanager
    async def call(self) -> AsyncIterator[float]:
        """A call from its arrival to its end; gives its wait for a slot, in milliseconds."""
        arrived = self._clock()
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
        """When each token of an answer that starts now is due, on the clock."""
        due = self._clock() + self._profile.first.draw_ms(self._rng) / 1000
        for number in range(tokens):
            self.tally.completion_tokens += 1
            yield due + number * self._profile.each_ms / 1000

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
