from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from prometheus_client import REGISTRY

from services.gateway.policies.breaker import Breaker, Permit, State
from tests.clock import PausedClock

OPEN_S = 1.0
SETTINGS = {
    "window_s": 10,
    "min_calls": 5,
    "in_a_row": 100,
    "failure_rate": 0.5,
    "slow_rate": 0.9,
    "slow_s": 2,
    "open_s": OPEN_S,
}


def make(clock: PausedClock, **settings: Any) -> Breaker:
    return Breaker("b", **{**SETTINGS, **settings}, clock=clock, rng=random.Random(1))


@pytest.fixture
def clock() -> PausedClock:
    return PausedClock()


def admitted(breaker: Breaker) -> Permit:
    permit = breaker.enter()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        admitted(breaker).failed()


def opened(clock: PausedClock, **settings: Any) -> Breaker:
    breaker = make(clock, **settings)
    fail(breaker, 5)
    assert breaker.state is State.OPEN
    return breaker


def test_it_opens_when_enough_calls_failed_at_a_high_enough_rate(clock):
    breaker = make(clock)
    admitted(breaker).succeeded(0.1)
    fail(breaker, 3)
    assert (breaker.state, breaker.why) == (State.CLOSED, "")
    fail(breaker)
    assert (breaker.state, breaker.why) == (State.OPEN, "4 of 5 calls failed in 10 s")
    assert breaker.enter() is None


def test_an_answer_ends_a_row_of_failures_though_it_was_slow(clock):
    breaker = make(clock, in_a_row=5, min_calls=1_000)
    for _ in range(4):
        fail(breaker, 4)
        admitted(breaker).succeeded(10)
    assert breaker.state is State.CLOSED
    fail(breaker, 5)
    assert (breaker.state, breaker.why) == (State.OPEN, "5 calls in a row failed")


def test_a_long_silence_does_not_end_a_row_of_failures(clock):
    breaker = make(clock, in_a_row=5, min_calls=1_000)
    fail(breaker, 4)
    permit = admitted(breaker)
    clock.advance(10)
    permit.abandoned()
    fail(breaker)
    assert breaker.state is State.OPEN


def test_failures_in_a_row_open_it_however_many_calls_went_well_before(clock):
    breaker = make(clock, in_a_row=5)
    for _ in range(500):
        admitted(breaker).succeeded(0.1)
    fail(breaker, 4)
    admitted(breaker).succeeded(0.1)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED
    fail(breaker)
    assert (breaker.state, breaker.why) == (State.OPEN, "5 calls in a row failed")


def test_it_stays_closed_while_failures_are_a_small_share(clock):
    breaker = make(clock)
    for _ in range(50):
        admitted(breaker).succeeded(0.1)
        admitted(breaker).succeeded(None)
        fail(breaker)
    assert breaker.state is State.CLOSED


def test_failures_that_are_long_ago_do_not_count(clock):
    breaker = make(clock)
    fail(breaker, 4)
    clock.advance(11)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED


def test_it_opens_when_almost_all_first_texts_are_late(clock):
    breaker = make(clock)
    for _ in range(5):
        admitted(breaker).succeeded(2.5)
    assert (breaker.state, breaker.why) == (State.OPEN, "5 of 5 calls in 10 s took more than 2 s to first text")


def test_an_abandoned_call_counts_only_when_it_was_slow_by_then(clock):
    breaker = make(clock)
    for _ in range(20):
        admitted(breaker).abandoned()
    assert breaker.state is State.CLOSED
    slow = [admitted(breaker) for _ in range(5)]
    clock.advance(2.5)
    for permit in slow:
        permit.abandoned()
    assert breaker.state is State.OPEN


def test_throttling_opens_it_at_once_and_for_as_long_as_it_was_told(clock):
    breaker = make(clock)
    admitted(breaker).throttled(30)
    assert (breaker.state, breaker.why) == (State.OPEN, "throttled for 30.0 s")
    assert 30 <= breaker.retry_after_s() <= 33
    clock.advance(29.9)
    assert breaker.enter() is None
    clock.advance(3.2)
    assert admitted(breaker).probe


def test_throttling_that_does_not_say_for_how_long_is_like_a_failure_in_time(clock):
    breaker = make(clock)
    admitted(breaker).throttled(0)
    assert OPEN_S <= breaker.retry_after_s() <= OPEN_S * 1.1


def test_a_longer_throttling_heard_while_it_is_open_is_respected_and_a_shorter_one_changes_nothing(clock):
    breaker = make(clock)
    long, short, first = (admitted(breaker) for _ in range(3))
    first.throttled(10)
    short.throttled(1)
    assert breaker.retry_after_s() >= 10
    long.throttled(60)
    assert breaker.retry_after_s() >= 60


def test_it_waits_about_its_time_before_one_probe(clock):
    breaker = opened(clock)
    assert 0.8 * OPEN_S <= breaker.retry_after_s() <= 1.2 * OPEN_S
    clock.advance(0.8 * OPEN_S - 0.01)
    assert breaker.enter() is None
    clock.advance(breaker.retry_after_s())
    assert admitted(breaker).probe
    assert (breaker.enter(), breaker.state, breaker.retry_after_s()) == (None, State.HALF_OPEN, OPEN_S)


def test_asking_whether_it_would_admit_changes_nothing(clock):
    breaker = opened(clock)
    assert not breaker.would_admit()
    clock.advance(1.2 * OPEN_S)
    assert breaker.would_admit()
    assert breaker.would_admit()
    assert (breaker.state, breaker.retry_after_s()) == (State.OPEN, 0)
    assert admitted(breaker).probe
    assert not breaker.would_admit()


def test_a_probe_that_succeeds_closes_it_with_an_empty_window(clock):
    breaker = opened(clock)
    clock.advance(1.2 * OPEN_S)
    admitted(breaker).succeeded(0.1)
    assert (breaker.state, breaker.why, breaker.retry_after_s()) == (State.CLOSED, "", 0)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED


@pytest.mark.parametrize(
    ("ends", "why", "least_s"),
    [
        (lambda probe: probe.failed(), "the probe failed", 0.8 * OPEN_S),
        (lambda probe: probe.succeeded(2.5), "the probe was slow", 0.8 * OPEN_S),
        (lambda probe: probe.throttled(30), "throttled for 30.0 s", 30),
    ],
    ids=["failed", "slow", "throttled"],
)
def test_a_probe_that_does_not_succeed_opens_it_again(clock, ends, why: str, least_s: float):
    breaker = opened(clock)
    clock.advance(1.2 * OPEN_S)
    ends(admitted(breaker))
    assert (breaker.state, breaker.why) == (State.OPEN, why)
    assert least_s <= breaker.retry_after_s() <= 1.5 * least_s


def test_a_probe_that_is_abandoned_leaves_its_place_to_the_next(clock):
    breaker = opened(clock)
    clock.advance(1.2 * OPEN_S)
    admitted(breaker).abandoned()
    assert breaker.state is State.HALF_OPEN
    assert admitted(breaker).probe


def test_calls_that_began_before_it_opened_neither_close_nor_reopen_it(clock):
    breaker = make(clock)
    early = [admitted(breaker) for _ in range(20)]
    fail(breaker, 5)
    before = breaker.retry_after_s()
    early.pop().succeeded(0.1)
    early.pop().failed()
    assert (breaker.state, breaker.retry_after_s()) == (State.OPEN, before)
    clock.advance(1.2 * OPEN_S)
    probe = admitted(breaker)
    early.pop().succeeded(0.1)
    early.pop().throttled(60)
    assert breaker.state is State.HALF_OPEN
    probe.succeeded(0.1)
    for permit in early:
        permit.failed()
    assert breaker.state is State.CLOSED


def test_a_call_reports_once(clock):
    breaker = make(clock)
    permit = admitted(breaker)
    permit.succeeded(0.1)
    for _ in range(5):
        permit.failed()
    permit.throttled(60)
    assert breaker.state is State.CLOSED


def test_its_changes_are_told_and_counted(clock):
    seen: list[tuple[str, State]] = []
    labels = {"backend": "watched"}
    breaker = Breaker(
        "watched",
        **SETTINGS,
        clock=clock,
        rng=random.Random(1),
        on_change=lambda changed, state: seen.append((changed.name, state)),
    )
    fail(breaker, 5)
    assert REGISTRY.get_sample_value("hedgerow_breaker_open", labels) == 1
    clock.advance(1.2 * OPEN_S)
    probe = admitted(breaker)
    assert REGISTRY.get_sample_value("hedgerow_breaker_open", labels) == 0.5
    probe.succeeded(0.1)
    assert REGISTRY.get_sample_value("hedgerow_breaker_open", labels) == 0
    assert seen == [("watched", state) for state in (State.OPEN, State.HALF_OPEN, State.CLOSED)]
    assert REGISTRY.get_sample_value("hedgerow_breaker_changes_total", {**labels, "state": "half_open"}) == 1


def test_a_refusal_says_why_and_when_to_come_back(clock):
    refusal = opened(clock).refusal()
    assert refusal.message == "b: 5 of 5 calls failed in 10 s"
    assert (refusal.reason, refusal.metadata) == ("BREAKER_OPEN", {"backend": "b"})
    assert refusal.retry_delay_s > 0


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
        how=st.sampled_from(["good", "slow", "failed", "throttled", "abandoned"]),
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


def test_a_lost_connection_opens_it_and_a_new_one_lets_a_probe_through_at_once(clock):
    breaker = make(clock)
    breaker.disconnected()
    assert (breaker.state, breaker.why, breaker.enter()) == (State.OPEN, "no connection", None)
    breaker.connected()
    permit = admitted(breaker)
    assert permit.probe
    assert breaker.enter() is None
    permit.succeeded(0.1)
    assert breaker.state is State.CLOSED


def test_a_new_connection_does_not_shorten_throttling(clock):
    breaker = make(clock)
    admitted(breaker).throttled(5)
    breaker.connected()
    assert breaker.enter() is None


def test_a_connection_that_stays_changes_nothing(clock):
    breaker = make(clock)
    breaker.connected()
    assert breaker.state is State.CLOSED


def test_it_closes_without_a_probe_when_its_backend_has_started(clock):
    breaker = opened(clock)
    breaker.started()
    assert (breaker.state, breaker.why) == (State.CLOSED, "")
    fail(breaker, 4)
    assert breaker.state is State.CLOSED, "what was before is forgotten"


def test_what_began_before_its_backend_started_says_nothing(clock):
    breaker = opened(clock)
    clock.advance(2 * OPEN_S)
    probe = admitted(breaker)
    breaker.started()
    probe.failed()
    assert breaker.state is State.CLOSED


def test_a_backend_that_has_started_is_left_alone_for_as_long_as_it_asks(clock):
    breaker = make(clock)
    admitted(breaker).throttled(5.0)
    breaker.started()
    assert breaker.state is State.OPEN
