"""What the documentation claims in numbers, simulated: seeded, on a clock that leaps, in seconds in all."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Mapping

import pytest

from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.concurrency_limit import FixedLimit, Gradient2, Sample
from services.gateway.policies.hedge import Hedge, HedgeBudget, HedgeRule
from services.gateway.policies.limiter import Limiter
from services.gateway.policies.slot import Shed, SlotRequest
from services.runtime.deadline import Deadline
from tests.clock import PausedClock, loop_clock, on_paused_loop


class Waiter:
    """Takes no second try."""

    def set(self) -> None:
        pass


@pytest.mark.parametrize("hits", [0.0, 0.4])
@pytest.mark.parametrize("share", [0.02, 0.05])
def test_hedges_use_their_share_of_requests_up_and_no_more(share: float, hits: float):
    """Also where two requests of five need no model."""
    clock, rng, hedged = PausedClock(), random.Random(3), 0
    budget = HedgeBudget(share, 10)
    hedge = Hedge(HedgeRule(), budget, LatencyBaseline(0.3, clock), clock)
    requests = 6_000
    for _ in range(requests):
        clock.advance(0.02)
        budget.count_request()
        if rng.random() < hits:
            continue
        budget.count_call()
        first_s, moment, news = rng.lognormvariate(-1.6, 0.5), hedge.moment(), Waiter()
        assert moment is not None
        if first_s > moment.after_s and budget.spend(news):
            hedged += 1
            hedge.add_unanswered(first_s)
        else:
            hedge.add_first_text(first_s)
        budget.dequeue(news)
    assert 0.85 * share <= hedged / requests <= share


def limit_under_overload(slots: int, first: int, seconds: float, *, reports_queue: bool) -> list[int]:
    """The limit, each minute, before a backend with so many slots, of which as many calls as may are always in
    flight. `first`: the limit at the start. `reports_queue`: whether the backend says how long a call queued."""
    clock, rng = PausedClock(), random.Random(0)
    limit = Gradient2(first, 10, 200, clock)
    began, in_flight, seen = clock(), 0, list[int]()
    free, running = [clock()] * slots, list[tuple[float, float, float, float, int]]()
    while clock() - began < seconds:
        while in_flight < limit.value:
            in_flight += 1
            starts = max(heapq.heappop(free), clock())
            ends = starts + rng.lognormvariate(0, 0.3) * 0.4
            heapq.heappush(free, ends)
            heapq.heappush(running, (ends, rng.random(), clock(), starts - clock(), in_flight))
        ends, _, sent, queued_s, number = heapq.heappop(running)
        clock.advance(ends - clock())
        in_flight -= 1
        limit.sample(Sample(ends - sent, queued_s if reports_queue else None, number))
        if clock() - began >= 60 * (len(seen) + 1):
            seen.append(limit.value)
    return seen


@pytest.mark.parametrize(("slots", "first"), [(8, 8), (20, 20), (40, 40), (60, 60), (10, 200)])
def test_under_overload_the_limit_settles_at_one_and_a_half_times_the_slots_and_four(slots: int, first: int):
    settled = limit_under_overload(slots, first, 420, reports_queue=True)[2:]
    theory = 1.5 * slots + 4
    assert all(abs(value - theory) <= 0.07 * theory for value in settled), settled


def test_without_reports_of_its_queue_the_limit_drifts_by_a_tenth_in_an_hour_at_most():
    minutes = limit_under_overload(20, 20, 3_600, reports_queue=False)
    assert 20 <= min(minutes) <= max(minutes) <= 50
    assert max(minutes[-5:]) <= 1.1 * min(minutes[:5])


def served(
    slots: int, hold_s: float, weights: Mapping[str, float], load: Mapping[str, float], seconds: float, score: int = 0
) -> dict[str, float]:
    """The share of all served time that each tenant has. `load`: what it asks for, where 1 is all that there is."""

    async def main() -> dict[str, float]:
        limiter = Limiter("m", FixedLimit(slots), 100, 0.2, clock=loop_clock, rng=random.Random(0))
        rng, had = random.Random(1), dict.fromkeys(weights, 0.0)

        async def call(tenant: str) -> None:
            request = SlotRequest(score, tenant, weights[tenant], Deadline.after(5, loop_clock))
            try:
                slot = await limiter.enter(request)
            except Shed:
                return
            held_s = rng.expovariate(1 / hold_s)
            await asyncio.sleep(held_s)
            had[tenant] += held_s
            slot.release()

        async def arrive(tenant: str, group: asyncio.TaskGroup) -> None:
            began = loop_clock()
            while loop_clock() - began < seconds:
                await asyncio.sleep(rng.expovariate(load[tenant] * slots / hold_s))
                group.create_task(call(tenant))

        async with asyncio.TaskGroup() as group:
            for tenant in weights:
                group.create_task(arrive(tenant, group))
        return {tenant: each / sum(had.values()) for tenant, each in had.items()}

    return on_paused_loop(main())


@pytest.mark.parametrize(
    ("slots", "hold_s", "expected"),
    [(20, 0.5, 0.745), (10, 0.05, 0.67), (4, 0.05, 0.62)],
    ids=lambda given: str(given),
)
def test_tenants_of_weights_3_and_1_share_by_weight_and_coarsely_with_few_slots(slots, hold_s, expected):
    """A slot that is free for a moment goes to the first caller, and with few slots such moments are more
    frequent."""
    shares = served(slots, hold_s, {"a": 3, "b": 1}, {"a": 3, "b": 3}, 300 * hold_s)
    assert shares["a"] == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("score", [0, 75, 100])
def test_an_urgent_flood_takes_no_slots_from_a_tenant_within_its_share(score: int):
    """Both tenants have the same weight: the other asks for three tenths of the capacity, and is entitled to half."""
    shares = served(20, 0.5, {"flood": 1, "other": 1}, {"flood": 6, "other": 0.3}, 30, score)
    assert shares["other"] >= 0.28


def test_a_flood_of_urgent_requests_leaves_a_tenant_of_higher_weight_most_of_its_share():
    shares = served(20, 0.5, {"a": 3, "b": 1}, {"a": 1.5, "b": 6}, 30, score=75)
    assert shares["a"] >= 0.62
