from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from services.gateway.policies.breaker import Breaker, Permit, State
from tests.clock import PausedClock
from tests.unit.gateway.policies.breakers import OPEN_S, SETTINGS, make


def admitted(breaker: Breaker) -> Permit:
    permit = breaker.enter()
    assert permit is not None
    return permit


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        admitted(breaker).failed()


def opened(clock: PausedClock) -> Breaker:
    breaker = make(clock)
    fail(breaker, 5)
    assert breaker.state is State.OPEN
    return breaker


def half_open(clock: PausedClock) -> Breaker:
    """The next call is its probe."""
    breaker = opened(clock)
    clock.advance(1.2 * OPEN_S)
    return breaker


ENDS: dict[str, Callable[[Permit], object]] = {
    "g": lambda permit: permit.succeeded(0.1),  # good
    "n": lambda permit: permit.succeeded(None),  # good, and no text was waited for
    "s": lambda permit: permit.succeeded(2.5),  # slow
    "f": lambda permit: permit.failed(),
    "q": lambda permit: permit.silent(),  # quiet for long
    "w": lambda permit: permit.withdrawn(),
}
IN_A_ROW = {"in_a_row": 5}
NO_RATE = {"in_a_row": 5, "min_calls": 1_000}


@pytest.mark.parametrize(
    ("settings", "calls", "why"),
    [
        pytest.param({}, "gfff", "", id="too few calls"),
        pytest.param({}, "gffff", "4 of 5 calls failed in 10 s", id="enough failures"),
        pytest.param({}, "gnf" * 50, "", id="a small share of failures"),
        pytest.param({}, "sssss", "5 of 5 calls in 10 s took more than 2 s to first text", id="late first texts"),
        pytest.param({}, "w" * 20 + "qqqq", "", id="withdrawn calls are none"),
        pytest.param({}, "qqqqq", "5 of 5 calls in 10 s took more than 2 s to first text", id="long silences"),
        pytest.param(NO_RATE, "ffffqf", "5 calls in a row failed", id="a silence does not end a row of failures"),
        pytest.param(NO_RATE, "ffffs" * 4, "", id="an answer ends a row of failures though it was slow"),
        pytest.param(NO_RATE, "ffffs" * 4 + "fffff", "5 calls in a row failed", id="a row of failures"),
        pytest.param(IN_A_ROW, "g" * 500 + "ffffgffff", "", id="failures that are not in a row"),
        pytest.param(IN_A_ROW, "g" * 500 + "ffffgfffff", "5 calls in a row failed", id="a row after many good calls"),
    ],
)
def test_the_breaker_opens_at_a_share_of_failures_or_late_texts_and_at_failures_in_a_row(
    clock, settings, calls: str, why
):
    breaker = make(clock, **settings)
    for call in calls:
        ENDS[call](admitted(breaker))
    assert (breaker.state, breaker.why) == (State.OPEN if why else State.CLOSED, why)
    assert breaker.would_admit() == (not why)


def test_failures_that_are_long_ago_do_not_count(clock):
    breaker = make(clock)
    fail(breaker, 4)
    clock.advance(11)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED


def test_throttling_opens_the_breaker_at_once_for_the_retry_delay(clock):
    breaker = make(clock)
    admitted(breaker).throttled(30)
    assert (breaker.state, breaker.why) == (State.OPEN, "rate limited: it asked for a pause of 30.0 s")
    assert 30 <= breaker.retry_after_s() <= 33
    clock.advance(29.9)
    assert breaker.enter() is None
    clock.advance(3.2)
    assert admitted(breaker).probe


def test_throttling_that_does_not_say_for_how_long_is_like_a_failure_in_time(clock):
    breaker = make(clock)
    admitted(breaker).throttled(0)
    assert OPEN_S <= breaker.retry_after_s() <= OPEN_S * 1.1


def test_while_open_a_longer_retry_delay_is_respected_and_a_shorter_one_changes_nothing(clock):
    breaker = make(clock)
    long, short, first = (admitted(breaker) for _ in range(3))
    first.throttled(10)
    short.throttled(1)
    assert breaker.retry_after_s() >= 10
    long.throttled(60)
    assert breaker.retry_after_s() >= 60


def test_the_breaker_admits_one_probe_after_its_open_time(clock):
    breaker = opened(clock)
    assert 0.8 * OPEN_S <= breaker.retry_after_s() <= 1.2 * OPEN_S
    clock.advance(0.8 * OPEN_S - 0.01)
    assert breaker.enter() is None
    clock.advance(breaker.retry_after_s())
    assert admitted(breaker).probe
    assert (breaker.enter(), breaker.state, breaker.retry_after_s()) == (None, State.HALF_OPEN, OPEN_S)


def test_a_probe_that_succeeds_closes_it_with_an_empty_window(clock):
    breaker = half_open(clock)
    admitted(breaker).succeeded(0.1)
    assert (breaker.state, breaker.why, breaker.retry_after_s()) == (State.CLOSED, "", 0)
    fail(breaker, 4)
    assert breaker.state is State.CLOSED


@pytest.mark.parametrize(
    ("ends", "why", "least_s"),
    [
        (lambda probe: probe.failed(), "the probe failed", 0.8 * OPEN_S),
        (lambda probe: probe.succeeded(2.5), "the probe was slow", 0.8 * OPEN_S),
        (lambda probe: probe.silent(), "the probe was slow", 0.8 * OPEN_S),
        (lambda probe: probe.throttled(30), "rate limited: it asked for a pause of 30.0 s", 30),
    ],
    ids=["failed", "slow", "silent", "throttled"],
)
def test_a_probe_that_does_not_succeed_opens_it_again(clock, ends, why: str, least_s: float):
    breaker = half_open(clock)
    ends(admitted(breaker))
    assert (breaker.state, breaker.why) == (State.OPEN, why)
    assert least_s <= breaker.retry_after_s() <= 1.5 * least_s


def test_a_withdrawn_probe_permits_the_next(clock):
    breaker = half_open(clock)
    admitted(breaker).withdrawn()
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


def test_changes_of_the_breaker_are_reported_and_counted(clock):
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
    breaker.connected()
    assert breaker.state is State.CLOSED
    admitted(breaker).throttled(5)
    breaker.connected()
    assert breaker.enter() is None


def test_the_breaker_closes_without_a_probe_when_its_backend_has_started(clock):
    breaker = opened(clock)
    breaker.started()
    assert (breaker.state, breaker.why) == (State.CLOSED, "")
    fail(breaker, 4)
    assert breaker.state is State.CLOSED, "earlier failures do not count"


def test_a_call_begun_before_its_backend_started_is_no_sample(clock):
    breaker = half_open(clock)
    probe = admitted(breaker)
    breaker.started()
    probe.failed()
    assert breaker.state is State.CLOSED


def test_a_backend_that_has_started_is_left_alone_for_as_long_as_it_asks(clock):
    breaker = make(clock)
    admitted(breaker).throttled(5.0)
    breaker.started()
    assert breaker.state is State.OPEN


def test_the_log_says_when_it_opens_and_why_and_when_it_closes(
    clock: PausedClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "services.gateway.policies.breaker")
    breaker = half_open(clock)
    admitted(breaker).failed()  # a probe that fails is no news
    clock.advance(1.2 * OPEN_S)
    admitted(breaker).succeeded(0.1)
    fail(breaker, 5)  # so soon that neither this nor its end is news
    clock.advance(1.2 * OPEN_S)
    admitted(breaker).succeeded(0.1)
    assert caplog.messages == [
        f"breaker of {breaker.name} opens: 5 of 5 calls failed in 10 s",
        f"breaker of {breaker.name} closes",
    ]
