"""The limits against a simulated backend: slots, a queue in order of arrival, and time that only the test moves."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.policies.concurrency_limit import Aimd, Gradient2, Limit, Sample
from tests.clock import PausedClock

Adaptive = Callable[[int, int, int, PausedClock], Limit]


class SimulatedBackend:
    """`slots` calls run at once; the others queue, and it does not report for how long. Callers keep to `limit`; a
    caller without a slot under it leaves."""

    def __init__(self, limit: Limit, slots: int, clock: PausedClock, service_s: Callable[[], float]):
        self.limit, self.slots, self.clock, self.service_s = limit, slots, clock, service_s
        self.in_flight = 0
        self.running: list[tuple[float, float, int]] = []  # when it ends, when it arrived, in flight at entry
        self.queue: deque[tuple[float, int]] = deque()
        self.history: list[int] = []

    def run(self, seconds: float, calls_per_s: float, rng: random.Random) -> SimulatedBackend:
        """Poisson arrivals for `seconds`; `history` gets the limit once a second."""
        end = self.clock() + seconds
        arrival, tick = self.clock() + rng.expovariate(calls_per_s), self.clock() + 1
        while (now := min(arrival, tick, self.running[0][0] if self.running else end)) < end:
            self.clock.advance(now - self.clock())
            if now == tick:
                self.history.append(self.limit.value)
                tick += 1
            elif now == arrival:
                arrival += rng.expovariate(calls_per_s)
                self._arrive(now)
            else:
                self._finish(now)
        return self

    def _arrive(self, now: float) -> None:
        if self.in_flight < self.limit.value:
            self.in_flight += 1
            self.queue.append((now, self.in_flight))
            self._start(now)

    def _start(self, now: float) -> None:
        while self.queue and len(self.running) < self.slots:
            arrived, in_flight = self.queue.popleft()
            heapq.heappush(self.running, (now + self.service_s(), arrived, in_flight))

    def _finish(self, now: float) -> None:
        _, arrived, in_flight = heapq.heappop(self.running)
        self.in_flight -= 1
        self.limit.sample(Sample(now - arrived, None, in_flight))
        self._start(now)


def samples(first_s: float, in_flight: int, count: int, queue_s: float | None = None) -> list[Sample]:
    return [Sample(first_s, queue_s, in_flight)] * count


def feed(limit: Limit, clock: PausedClock, window: list[Sample]) -> None:
    """One full window."""
    clock.advance(1.1)
    for sample in window:
        limit.sample(sample)


def test_gradient2_grows_again_after_an_overload():
    rng, clock = random.Random(3), PausedClock()
    slow = [1.0]
    backend = SimulatedBackend(Gradient2(20, 5, 100, clock), 40, clock, lambda: slow[0] * rng.uniform(0.1, 0.3))
    backend.run(60, 150, rng)
    before = backend.history[-1]
    slow[0] = 5.0
    backend.run(60, 150, rng)
    assert backend.history[-1] < before
    slow[0] = 1.0
    backend.run(60, 150, rng)
    assert backend.history[-1] >= 30  # 150 calls a second of 0.2 s


@pytest.mark.parametrize(
    ("calls_per_s", "lowest"), [(60, 15), (16, 10)], ids=["fewer calls are no faster", "at the lowest limit"]
)
def test_a_backend_that_is_slower_for_reasons_of_its_own_gets_its_calls_back_within_minutes(
    calls_per_s: int, lowest: int
):
    rng, clock, slow = random.Random(6), PausedClock(), [1.0]
    limit, needed = Gradient2(20, 10, 200, clock), calls_per_s * 0.54  # each call takes so long
    backend = SimulatedBackend(limit, 10_000, clock, lambda: slow[0] * rng.lognormvariate(-0.7, 0.4))
    backend.run(120, calls_per_s, rng)
    assert backend.history[-1] >= min(needed, 20)
    slow[0] = 3.0
    backend.run(240, calls_per_s, rng)
    assert min(backend.history[120:]) >= lowest
    assert backend.history[-1] >= 3 * needed
    slow[0] = 1.0
    backend.run(60, calls_per_s, rng)
    assert backend.history[-1] >= needed


@pytest.mark.parametrize("slots", [20, 40])
def test_a_backend_that_loses_slots_is_not_taken_for_one_that_is_slower_for_reasons_of_its_own(slots: int):
    rng, clock = random.Random(3), PausedClock()
    backend = SimulatedBackend(Gradient2(20, 10, 200, clock), 100, clock, lambda: rng.lognormvariate(0.7, 0.4))
    backend.run(600, 36, rng)
    assert backend.history[-1] > 100
    backend.slots = slots
    backend.run(900, 36, rng)
    assert max(backend.history[-600:]) <= 1.5 * (1.5 * slots + 4)


def test_a_backend_with_fewer_slots_than_the_lowest_limit_has_a_bounded_queue():
    rng, clock = random.Random(7), PausedClock()
    backend = SimulatedBackend(Gradient2(20, 10, 200, clock), 4, clock, lambda: rng.lognormvariate(-1.5, 0.4))
    backend.run(1_800, 60, rng)
    assert max(backend.history[60:]) <= 22


def test_a_heavy_tail_without_congestion_does_not_shrink_gradient2():
    rng, clock = random.Random(4), PausedClock()

    def service_s() -> float:  # one call in ten has a Pareto tail with no variance
        return 0.1 * rng.paretovariate(1.2) * 5 if rng.random() < 0.1 else rng.lognormvariate(-2, 0.5)

    backend = SimulatedBackend(Gradient2(20, 5, 200, clock), 10_000, clock, service_s)
    backend.run(300, 100, rng)
    assert min(backend.history) >= 20


def test_a_limit_that_is_not_used_does_not_grow():
    for kind in (Aimd, Gradient2):
        clock = PausedClock()
        limit = kind(20, 10, 200, clock)
        for _ in range(50):
            feed(limit, clock, samples(0.1, in_flight=9, count=20))
        assert limit.value == 20


def test_aimd_follows_the_slowest_of_twenty():
    clock = PausedClock()
    limit = Aimd(50, 10, 200, clock)
    feed(limit, clock, samples(0.4, 50, 20))
    assert limit.value == 55
    feed(limit, clock, samples(0.7, 50, 20))
    assert limit.value == 55
    feed(limit, clock, samples(1.1, 50, 1) + samples(0.4, 50, 19))
    assert limit.value == 60
    feed(limit, clock, samples(1.1, 50, 2) + samples(0.4, 50, 18))
    assert limit.value == 50


def test_a_limit_is_not_judged_by_few_calls():
    clock = PausedClock()
    limit = Aimd(50, 10, 200, clock)
    feed(limit, clock, samples(0.1, 50, 19))
    assert limit.value == 50
    limit.sample(Sample(0.1, None, 50))
    assert limit.value == 55


def test_calls_refused_together_shrink_a_limit_once():
    for kind in (Aimd, Gradient2):
        clock = PausedClock()
        limit = kind(100, 10, 200, clock)
        for _ in range(20):
            limit.sample(Sample(0.001, None, 100, failed=True))
        assert limit.value == 90
        clock.advance(0.3)
        limit.sample(Sample(0.001, None, 100, failed=True))
        assert limit.value == 81


def test_a_refusal_is_not_taken_for_a_fast_answer():
    clock = PausedClock()
    limit = Aimd(50, 10, 200, clock)
    feed(limit, clock, samples(0.8, 50, 19) + [Sample(0.001, None, 50, failed=True)] * 100)
    assert limit.value == 45


def test_a_start_outside_the_bounds_is_moved_into_them():
    assert [Aimd(initial, 10, 20).value for initial in (1, 15, 99)] == [10, 15, 20]


_SAMPLES = st.builds(
    Sample,
    first_s=st.floats(0, 1e6),
    queue_s=st.none() | st.floats(0, 1e6),
    in_flight=st.integers(1, 1_000),
    failed=st.booleans(),
)


@given(
    st.sampled_from([Aimd, Gradient2]),
    st.integers(1, 300),
    st.lists(st.tuples(st.floats(0, 2), st.lists(_SAMPLES, max_size=3), st.integers(1, 10)), max_size=30),
)
def test_a_limit_is_never_below_its_floor_nor_above_its_ceiling(kind: Adaptive, initial, steps):
    clock = PausedClock()
    limit = kind(initial, 10, 200, clock)
    for wait_s, few, times in steps:
        clock.advance(wait_s)
        for sample in few * times:
            limit.sample(sample)
            assert 10 <= limit.value <= 200
