"""Any calls at a breaker, which begin, end and take time in any order."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.gateway.policies.breaker import Breaker, Permit, State
from tests.clock import PausedClock
from tests.unit.gateway.policies.breakers import OPEN_S, make


class _AnyCalls(RuleBasedStateMachine):
    """Calls that begin, end and take time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = PausedClock()
        self.earliest = 0.0  # that it may admit a probe
        self.told_s = 0.0  # for how long it opens, at least
        self.breaker = make(self.clock, min_calls=2)
        self.breaker._on_change = self.changed
        self.running: list[Permit] = []
        self.probes = 0

    def changed(self, breaker: Breaker, state: State) -> None:
        if state is State.OPEN:
            self.earliest = self.clock() + self.told_s

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule()
    def a_call_begins(self):
        would, before = self.breaker.would_admit(), self.breaker.state
        permit = self.breaker.enter()
        assert would == (permit is not None)
        if permit is None:
            return
        assert permit.probe == (before is not State.CLOSED)
        assert before is not State.OPEN or self.clock() >= self.earliest
        self.probes += permit.probe
        self.running.append(permit)

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        how=st.sampled_from(["good", "slow", "failed", "throttled", "silent", "withdrawn"]),
        retry_after_s=st.floats(0, 5),
    )
    def a_call_ends(self, data, how, retry_after_s):
        permit = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.told_s = (retry_after_s or OPEN_S) if how == "throttled" else 0.8 * OPEN_S
        if how in ("good", "slow"):
            permit.succeeded(0.1 if how == "good" else 5)
        elif how == "throttled":
            permit.throttled(retry_after_s)
            if self.breaker.state is State.OPEN:
                self.earliest = max(self.earliest, self.clock() + self.told_s)
        else:
            getattr(permit, how)()
        self.probes -= permit.probe

    @invariant()
    def at_most_one_call_probes(self):
        assert self.probes <= 1
        assert (self.breaker.state is State.HALF_OPEN) or not self.probes

    @invariant()
    def it_is_never_stuck(self):
        assert self.breaker.would_admit() == (not self.breaker.retry_after_s())
        assert self.probes or self.breaker.retry_after_s() < 10

    @invariant()
    def it_says_why_exactly_while_it_is_not_closed(self):
        assert bool(self.breaker.why) == (self.breaker.state is not State.CLOSED)


test_any_calls = _AnyCalls.TestCase
