"""Events in any order, on a clock that jumps: single flights, and a breaker that tenants share.

Each machine has a plain model of its invariants beside the real object.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.breaker import Breaker, State
from services.gateway.policies.single_flight import Flight, FlightReader, SingleFlight
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker, TenantAwarePermit
from services.runtime.errors import ServiceError, TooLate, Unavailable
from tests.clock import PausedClock, PausedLoop
from tests.examples import examples
from tests.unit.gateway.policies.breakers import SETTINGS

SEEDED = settings(max_examples=examples(60), stateful_step_count=30, derandomize=True, deadline=None, database=None)
JUMPS = st.sampled_from([0.0, 1e-6, 0.001, 0.1, 1.0, 10.0, 59.9, 3_600.0, 1e9])


class FlightMachine(RuleBasedStateMachine):
    """Requests for two things, which read along, leave, and run out of time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = PausedLoop()
        asyncio.set_event_loop(self.loop)
        self.flights = SingleFlight[str, Flight[int]]()
        self.running: dict[str, int] = {"a": 0, "b": 0}
        self.readers = list[tuple[Flight[int], FlightReader[int], list[int]]]()
        self.started = list[Flight[int]]()

    def teardown(self) -> None:
        for _, reader, _ in self.readers:
            reader.close()
        self.turn(0.0)
        assert self.running == {"a": 0, "b": 0}
        assert len(self.flights) == 0
        assert not asyncio.all_tasks(self.loop)
        asyncio.set_event_loop(None)
        self.loop.close()

    def turn(self, seconds: float) -> None:
        async def pass_time() -> None:
            await asyncio.sleep(seconds)
            for _ in range(10):
                await asyncio.sleep(0)

        self.loop.run_until_complete(pass_time())

    async def execution(self, name: str, flight: Flight[int], items: int, fails: bool) -> None:
        self.running[name] += 1
        try:
            for item in range(items):
                await asyncio.sleep(1)
                flight.add(item)
            if fails:
                raise Unavailable("gone")
        finally:
            self.running[name] -= 1

    @rule(name=st.sampled_from("ab"), items=st.integers(0, 3), fails=st.booleans(), within_s=st.floats(0.1, 10))
    def asks(self, name: str, items: int, fails: bool, within_s: float):
        async def ask() -> None:
            flight = self.flights.get(name)
            if flight is None:
                flight = Flight[int]()
                reader = flight.subscribe(within_s)
                flight.start(self.flights.track(name, flight, self.execution(name, flight, items, fails)))
                self.started.append(flight)
            else:
                reader = flight.subscribe(within_s)
            self.readers.append((flight, reader, []))

        self.loop.run_until_complete(ask())

    @rule(name=st.sampled_from("ab"), items=st.integers(0, 3))
    def asks_and_leaves_at_once(self, name: str, items: int):
        async def ask_and_leave() -> None:  # before the execution has begun
            flight = self.flights.get(name) or Flight[int]()
            reader = flight.subscribe(5.0)
            if flight not in self.started:
                flight.start(self.flights.track(name, flight, self.execution(name, flight, items, False)))
                self.started.append(flight)
            reader.close()
            reader.close()

        self.loop.run_until_complete(ask_and_leave())

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 2.5, 1_000.0]))
    def time_passes(self, seconds: float):
        self.turn(seconds)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def reads(self, data: st.DataObject):
        flight, reader, seen = self.readers[data.draw(st.integers(0, len(self.readers) - 1))]
        if not reader._has_changed():
            return
        problem, new = self.loop.run_until_complete(taken(reader))
        seen += new
        assert reader._late if isinstance(problem, TooLate) else seen == flight.items
        assert problem is None or problem is not flight.error
        assert new or problem or flight.over

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject):
        _, reader, _ = self.readers.pop(data.draw(st.integers(0, len(self.readers) - 1)))
        reader.close()

    @invariant()
    def one_execution_at_a_time_that_somebody_reads(self):
        self.turn(0.0)
        assert all(number <= 1 for number in self.running.values())
        for flight in self.started:
            assert flight.over or flight._readers
        assert len(self.flights) == sum(self.running.values())


async def taken(reader: FlightReader[int]) -> tuple[ServiceError | None, list[int]]:
    try:
        return None, await reader.take()
    except ServiceError as problem:
        return problem, []


class SharedBreakerMachine(RuleBasedStateMachine):
    """Three tenants; a failure that one meets alone, while others are answered, keeps no other away."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = PausedClock()
        make = partial(
            Breaker, "stateful", **{**SETTINGS, "in_a_row": 3}, clock=self.clock, rng=random.Random(1), in_metrics=False
        )

        def made(**how: object) -> Breaker:
            return make(**{**how, "in_metrics": False})

        self.breaker = TenantAwareBreaker(made, LatencyBaseline(0.5, self.clock), 10.0, "stateful")
        self.running = list[tuple[str, TenantAwarePermit]]()
        self.guilty = set[str]()  # which had failed calls
        self.answered = {name: float("-inf") for name in "abc"}
        self.alone = True  # whether at each failure another tenant had just been answered, and no other had met it

    @rule(seconds=JUMPS)
    def time_passes(self, seconds: float):
        self.clock.advance(seconds)

    @rule(tenant=st.sampled_from("abc"))
    def begins(self, tenant: str):
        would = self.breaker.would_admit(tenant)
        permit = self.breaker.enter(tenant)
        assert would == (permit is not None)
        if permit:
            self.running.append((tenant, permit))

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        how=st.sampled_from(["good", "slow", "failed", "silent", "throttled", "left", "left", "good", "good"]),
    )
    def ends(self, data: st.DataObject, how: str):
        tenant, permit = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if how == "good":
            permit.succeeded(0.1)
            self.answered[tenant] = self.clock()
        elif how == "left":
            permit.withdrawn()
        else:
            self.guilty.add(tenant)
            answered_at = max(at for name, at in self.answered.items() if name != tenant)
            self.alone = self.alone and self.guilty == {tenant} and self.clock() - answered_at <= 10.0
            ends = {"slow": lambda: permit.succeeded(5), "failed": permit.failed, "silent": permit.abandoned}
            ends.get(how, lambda: permit.throttled(3))()
        before = self.breaker.state
        permit.failed()
        permit.throttled(100)
        assert self.breaker.state is before, "a call reports once"

    @invariant()
    def what_one_meets_alone_keeps_no_other_away(self):
        if self.alone:
            assert self.breaker.state is State.CLOSED
            assert all(self.breaker.would_admit(name) for name in "abc" if name not in self.guilty)

    @invariant()
    def nobody_is_kept_away_for_ever(self):
        for tenant in "abc":
            probing = [name for name, permit in self.running if permit.probe]
            waits_s = self.breaker.retry_after_s(tenant)
            assert probing or waits_s <= 10
            assert self.breaker.would_admit(tenant) == (waits_s == 0)
            assert self.breaker.would_admit(tenant) or self.breaker.why(tenant)


TestFlights, TestSharedBreaker = FlightMachine.TestCase, SharedBreakerMachine.TestCase
TestFlights.settings = TestSharedBreaker.settings = SEEDED
