"""A limiter with Gradient2 in front of simulated backends, on a paused clock. It refuses few requests of a backend that
has free slots; at three times a backend's capacity, goodput, latency and priorities hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from services.gateway.policies.concurrency_limit import Gradient2, Sample
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Shed, SlotRequest, class_of
from services.runtime.deadline import Deadline
from tests.clock import loop_clock, on_paused_loop

_UNLIMITED = 10_000
_NORMAL = {0: 1}  # scores, and how many of the requests have them
_ALL_CLASSES = {100: 1, 75: 2, 0: 6, -50: 1}


class Phase(NamedTuple):
    seconds: float
    requests_per_s: float
    slots: int
    service_s: float  # the mean


class Ended(NamedTuple):
    """A request: when it came after the start, its class, whether it was served, and when it ended after it came."""

    at_s: float
    kind: int
    served: bool
    took_s: float


@dataclass(frozen=True)
class Ends:
    requests: Collection[Ended]

    def between(self, since_s: float, until_s: float) -> Ends:
        return Ends([each for each in self.requests if since_s <= each.at_s < until_s])

    def of(self, kind: int) -> Ends:
        return Ends([each for each in self.requests if each.kind == kind])

    @property
    def refused(self) -> float:
        """The share that was refused."""
        return sum(not each.served for each in self.requests) / len(self.requests)

    def p99_s(self) -> float:
        times = sorted(each.took_s for each in self.requests if each.served)
        return times[int(0.99 * len(times))]


def run(*phases: Phase, scores: Mapping[int, int], sigma: float, first: float, seed: int) -> Ends:
    """Poisson arrivals with log-normal service times, whose share `first` is over at the first token. The slots of the
    backend are taken in order of arrival, and it does not report how long calls queue."""

    async def main() -> Ends:
        rng, ended = random.Random(seed), list[Ended]()
        limiter = Limiter("m", Gradient2(20, 10, 200, loop_clock), 100, 0.2, clock=loop_clock, rng=rng)
        began = loop_clock()

        async def call(phase: Phase, slots: asyncio.Semaphore) -> None:
            came, score = loop_clock(), rng.choices([*scores], [*scores.values()])[0]
            try:
                slot = await limiter.enter(SlotRequest(score, "a", 1, Deadline.after(30, loop_clock)))
            except Shed:
                ended.append(Ended(came - began, class_of(score), False, loop_clock() - came))
                return
            sent = loop_clock()
            async with slots:
                service_s = phase.service_s * rng.lognormvariate(-(sigma**2) / 2, sigma)
                await asyncio.sleep(service_s * first)
                first_s = loop_clock() - sent
                await asyncio.sleep(service_s * (1 - first))
            slot.release(Sample(first_s, None, slot.in_flight))
            ended.append(Ended(came - began, class_of(score), True, loop_clock() - came))

        async with asyncio.TaskGroup() as group:
            for phase in phases:
                slots, ends = asyncio.Semaphore(phase.slots), loop_clock() + phase.seconds
                while (wait_s := rng.expovariate(phase.requests_per_s)) < ends - loop_clock():
                    await asyncio.sleep(wait_s)
                    group.create_task(call(phase, slots))
                await asyncio.sleep(ends - loop_clock())
        return Ends(ended)

    return on_paused_loop(main())


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(("sigma", "first"), [(0.02, 1.0), (0.4, 1.0), (0.4, 0.3), (0.8, 0.3)])
@pytest.mark.parametrize(
    ("phases", "since_s", "until_s", "refused"),
    [
        ([Phase(62, 40, _UNLIMITED, 1.0)], 2, 62, 0.01),
        ([Phase(60, 40, _UNLIMITED, 1.0), Phase(120, 40, _UNLIMITED, 3.0)], 120, 180, 0.05),
        ([Phase(30, 20, _UNLIMITED, 0.05), Phase(120, 20, _UNLIMITED, 0.6)], 90, 150, 0.05),
    ],
    ids=["cold start", "provider three times as slow", "machine that becomes busy"],
)
def test_a_backend_that_is_not_full_has_few_of_its_requests_refused(
    phases: list[Phase], since_s: float, until_s: float, refused: float, sigma: float, first: float, seed: int
):
    ends = run(*phases, scores=_NORMAL, sigma=sigma, first=first, seed=seed)
    assert ends.between(since_s, until_s).refused <= refused


@pytest.mark.parametrize("before", [[], [Phase(60, 4, 8, 1.0)]], ids=["at the start", "after half the load"])
@pytest.mark.parametrize(("sigma", "first", "p99_s"), [(0.02, 1.0, 3.5), (0.4, 1.0, 5), (0.4, 0.3, 4), (0.8, 0.3, 6)])
def test_three_times_the_capacity_leaves_goodput_latency_and_priorities(
    before: list[Phase], sigma: float, first: float, p99_s: float
):
    """Eight slots, each for 1 s."""
    ends = run(*before, Phase(120, 24, 8, 1.0), scores=_ALL_CLASSES, sigma=sigma, first=first, seed=1)
    began_s = sum(each.seconds for each in before)
    level = ends.between(began_s + 20, began_s + 120)
    assert len([each for each in level.requests if each.served]) / 100 >= 8 / 1.5
    assert level.p99_s() <= p99_s
    critical, high, normal, _ = (level.of(kind).refused for kind in range(4))
    assert critical < high < normal
