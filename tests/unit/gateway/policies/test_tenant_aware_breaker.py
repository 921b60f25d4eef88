from __future__ import annotations

import random
from functools import partial

import pytest
from prometheus_client import REGISTRY

from services.gateway.errors import Unfinished
from services.gateway.policies import tenant_aware_breaker
from services.gateway.policies.baseline import LatencyBaseline
from services.gateway.policies.breaker import Breaker, BreakerOpen, State, Throttled
from services.gateway.policies.tenant_aware_breaker import Blame, TenantAwareBreaker, TenantAwarePermit
from services.runtime.errors import Exhausted, InvalidInput, Starting, TooLate, Unavailable
from tests.clock import PausedClock
from tests.unit.gateway.policies.breakers import SETTINGS

WINDOW_S, NEEDS_S = 10.0, 0.5


@pytest.fixture
def breaker(clock: PausedClock) -> TenantAwareBreaker:
    return make(clock)


def make(
    clock: PausedClock, name: str = "shared", min_calls: int = 1_000, needs_s: float = NEEDS_S
) -> TenantAwareBreaker:
    settings = {**SETTINGS, "in_a_row": 5, "min_calls": min_calls}
    return TenantAwareBreaker(
        partial(Breaker, name, **settings, clock=clock, rng=random.Random(1)),
        LatencyBaseline(needs_s, clock),
        WINDOW_S,
        name,
    )


def admitted(breaker: TenantAwareBreaker, tenant: str) -> TenantAwarePermit:
    permit = breaker.enter(tenant)
    assert permit is not None
    return permit


def fail(breaker: TenantAwareBreaker, tenant: str, times: int = 1) -> list[Blame]:
    return [admitted(breaker, tenant).failed() for _ in range(times)]


def test_failures_of_the_only_tenant_are_the_backends(breaker):
    admitted(breaker, "a").succeeded(0.1)
    assert fail(breaker, "a", 5) == [Blame.BACKEND] * 5
    assert breaker.state is State.OPEN
    assert not breaker.would_admit("b")


def test_failures_of_one_tenant_while_others_are_answered_open_its_own_breaker(breaker):
    admitted(breaker, "b").succeeded(0.1)
    assert fail(breaker, "a", 5) == [Blame.TENANT] * 5
    assert (breaker.state, breaker.why("b"), breaker.retry_after_s("b")) == (State.CLOSED, "", 0)
    assert admitted(breaker, "b")
    assert breaker.enter("a") is None
    assert not breaker.would_admit("a")
    assert breaker.refusal("a").message == "shared: 5 calls in a row failed, of this tenant alone"
    assert breaker.refusal("a").retry_delay_s > 0


def test_failures_of_a_second_tenant_are_the_backends(breaker):
    for tenant in ("a", "b", "c"):
        admitted(breaker, tenant).succeeded(0.1)
    assert fail(breaker, "a", 5) == [Blame.TENANT] * 5
    assert fail(breaker, "b", 5) == [Blame.BACKEND] * 5
    assert breaker.state is State.OPEN


def test_the_noise_of_others_does_not_make_a_hostile_tenants_failures_the_backends(breaker):
    for _ in range(100):
        if permit := breaker.enter("a"):
            permit.failed()
        admitted(breaker, "b").succeeded(0.1)
    fail(breaker, "b")
    assert breaker.state is State.CLOSED


def test_the_success_of_others_speaks_for_the_backend_for_as_long_as_the_window(breaker, clock):
    admitted(breaker, "b").succeeded(0.1)
    clock.advance(WINDOW_S + 1)
    assert fail(breaker, "a", 5) == [Blame.BACKEND] * 5


def test_a_tenant_that_was_kept_away_is_tried_again_by_a_probe_of_its_own(breaker, clock):
    admitted(breaker, "b").succeeded(0.1)
    fail(breaker, "a", 5)
    clock.advance(1.2)
    probe = admitted(breaker, "a")
    assert (probe.probe, breaker.enter("a")) == (True, None)
    probe.succeeded(0.1)
    assert not admitted(breaker, "a").probe


@pytest.mark.parametrize("answered", [True, False])
def test_a_provider_that_throttles_one_tenant_is_closed_to_that_tenant_until_it_throttles_another(breaker, answered):
    if answered:
        admitted(breaker, "b").succeeded(0.1)
    assert admitted(breaker, "a").throttled(30) is Blame.TENANT
    assert (breaker.state, breaker.enter("a")) == (State.CLOSED, None)
    assert admitted(breaker, "c").throttled(30) is Blame.BACKEND
    assert breaker.enter("b") is None


def test_without_tenants_a_provider_that_throttles_is_closed(breaker):
    assert admitted(breaker, "").throttled(30) is Blame.BACKEND
    assert breaker.state is State.OPEN


def test_a_refusal_says_why_and_when_to_come_back(breaker, clock):
    admitted(breaker, "a").throttled(30)
    own = breaker.refusal("a")
    assert own.message == "shared: rate limited: it asked for a pause of 30.0 s, of this tenant alone"
    assert (type(own), own.metadata) == (Throttled, {"backend": "shared"})
    assert 30 <= own.retry_delay_s < 40
    fail(breaker, "c", 5)
    common = breaker.refusal("d")
    assert (type(common), common.reason) == (BreakerOpen, "BREAKER_OPEN")
    assert common.retry_delay_s > 0


SLOW_S = SETTINGS["slow_s"] + 1


@pytest.mark.parametrize(
    "ends",
    [
        lambda permit, took_s: permit.succeeded(took_s),
        lambda permit, took_s: permit.failed(),
        lambda permit, took_s: permit.abandoned(),
        lambda permit, took_s: permit.withdrawn(),
    ],
    ids=["slow", "failed", "silent", "withdrawn"],
)
def test_slow_calls_of_one_tenant_do_not_open_the_breaker_for_others(clock, ends):
    breaker = make(clock, min_calls=5)
    for _ in range(30):
        admitted(breaker, "b").succeeded(0.1)
        permits = [permit for _ in range(20) if (permit := breaker.enter("a"))]
        clock.advance(SLOW_S)
        for permit in permits:
            ends(permit, SLOW_S)
        assert breaker.state is State.CLOSED


def test_an_early_cancelled_call_is_no_sample_however_late_it_is(clock):
    """The backend usually needs as long."""
    breaker = make(clock, min_calls=5, needs_s=2 * SLOW_S)
    permits = [admitted(breaker, "a") for _ in range(20)]
    clock.advance(SLOW_S)
    for permit in permits:
        permit.withdrawn()
    assert breaker.state is State.CLOSED


def test_silence_that_is_late_but_no_failure_counts_as_slow_for_its_replica(clock):
    breaker = make(clock, min_calls=5, needs_s=2 * SLOW_S)
    permits = [admitted(breaker, tenant) for tenant in "abcde"]
    clock.advance(SLOW_S)
    assert [permit.abandoned() for permit in permits] == [Blame.NONE] * 5
    assert (breaker.state, breaker.why()) == (State.OPEN, "5 of 5 calls in 10 s took more than 2 s to first text")


@pytest.mark.parametrize(("had_s", "blame"), [(NEEDS_S - 0.1, Blame.NONE), (NEEDS_S, Blame.BACKEND)])
def test_silence_is_a_failure_where_it_lasted_as_long_as_the_backend_usually_needs(breaker, clock, had_s, blame):
    ended = (lambda permit: permit.abandoned(), lambda permit: permit.ended(TooLate("late")))
    for number in range(5):
        permit = admitted(breaker, "a")
        clock.advance(had_s)
        assert ended[number % 2](permit) is blame
    assert breaker.state is (State.OPEN if blame is Blame.BACKEND else State.CLOSED)


def test_an_invalid_request_is_neither_failure_nor_success(breaker):
    large = InvalidInput("field", "small", "large")
    for problem in (large, Exhausted("too many"), Unfinished("too long for 1 s"), Starting("starting")):
        for _ in range(20):
            assert admitted(breaker, "a").ended(problem) is Blame.NONE
    fail(breaker, "a", 4)
    admitted(breaker, "a").ended(large)
    admitted(breaker, "a").ended(Unavailable("gone"))
    assert breaker.state is State.OPEN


def test_replies_teach_what_is_usual(breaker, clock):
    for _ in range(30):
        permit = admitted(breaker, "a")
        clock.advance(2.0)
        permit.replied()
    assert breaker.baseline.needs_s() == pytest.approx(2.0, rel=0.02)


def test_a_call_reports_once(breaker):
    permit = admitted(breaker, "a")
    permit.succeeded(0.1)
    assert [permit.failed(), permit.throttled(3), permit.abandoned()] == [Blame.NONE] * 3


def test_only_everybodys_state_is_in_the_gauge_and_a_tenants_is_counted(clock):
    breaker = make(clock, "gauged")
    admitted(breaker, "b").succeeded(0.1)
    fail(breaker, "a", 5)
    labels = {"backend": "gauged"}
    assert REGISTRY.get_sample_value("hedgerow_breaker_open", labels) == 0
    assert REGISTRY.get_sample_value("hedgerow_breaker_opened_for_one_total", labels) == 1


def test_a_removed_backend_leaves_nothing_in_the_metrics(clock):
    shared = make(clock, "gone@10.0.0.1:50051")
    admitted(shared, "good").succeeded(0.1)
    fail(shared, "bad", 5)
    late, late_alone = admitted(shared, "good"), admitted(shared, "another")
    shared.disconnected()
    assert rows("gone@10.0.0.1:50051")
    shared.forget()
    assert not rows("gone@10.0.0.1:50051")
    late.failed()
    late_alone.throttled(1)
    for _ in range(10):
        if permit := shared.breaker_of("third").enter():
            permit.failed()
    clock.advance(60)
    admitted(shared, "good").failed()  # one that was picked before it was gone; it would be the probe
    assert not rows("gone@10.0.0.1:50051")


def rows(backend: str) -> list[str]:
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    return [sample.name for sample in samples if sample.labels.get("backend") == backend]


def test_breakers_of_single_tenants_have_a_limit_however_many_are_open(clock, monkeypatch):
    monkeypatch.setattr(tenant_aware_breaker, "_MOST_OWN", 10)
    shared = make(clock)
    for number in range(100):
        own = shared.breaker_of(f"tenant-{number}")
        while (permit := own.enter()) is not None:
            permit.failed()
    assert len(shared._own) <= 10
    for number in range(100):
        shared.is_tenants_own_failure(f"tenant-{number}")
    assert len(shared._failing) <= 2
