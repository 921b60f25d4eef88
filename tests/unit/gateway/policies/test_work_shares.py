"""Under pressure the tenant that causes it is refused first."""

from __future__ import annotations

import pytest

from services.gateway.policies.work_shares import WorkShares
from tests.clock import PausedClock


class Scene:
    """Accounts of a process under `pressure`."""

    def __init__(self, pressure: float = 2.0):
        self.pressure, self.clock = pressure, PausedClock()
        self.work = WorkShares(lambda: self.pressure, 0.85, self.clock)

    def spent(self, weight: float = 1, **seconds: float) -> Scene:
        for tenant, each in seconds.items():
            self.work.spend(tenant, weight, each)
        return self

    def refused(self, *tenants: str) -> list[str]:
        return [tenant for tenant in tenants if self.work.refusal(tenant)]


def test_a_tenant_alone_is_refused_under_pressure_and_only_then() -> None:
    scene = Scene().spent(a=0.1)
    assert scene.refused("a") == ["a"]
    scene.pressure = 0.84
    assert scene.refused("a") == []


def test_under_pressure_the_tenant_above_its_fair_share_is_refused() -> None:
    scene = Scene().spent(busy=0.3, quiet=0.1)
    assert scene.refused("busy", "quiet", "new") == ["busy"]
    expected = "a pressure of 2.00, and the tenant has 1.50 times its fair share of the recent work"
    assert scene.work.refusal("busy") == expected


def test_a_fair_share_is_by_weight() -> None:
    scene = Scene().spent(weight=3, large=0.3).spent(small=0.15)
    assert scene.refused("large", "small") == ["small"]


def test_a_tenants_new_weight_counts_at_once() -> None:
    scene = Scene().spent(weight=1, busy=0.3, quiet=0.1)
    assert scene.refused("busy", "quiet") == ["busy"]
    scene.spent(weight=9, busy=0.001)  # after its settings were read again
    assert scene.refused("busy", "quiet") == ["quiet"]


SHARES = {"busy": 3.5, "half": 0.6, "quarter": 0.3, "eighth": 0.15, "least": 0.1}


@pytest.mark.parametrize(("seconds", "refused"), [(0, 1), (0.9, 1), (1, 2), (1.9, 2), (2, 3), (3, 4), (4, 4), (60, 4)])
def test_while_the_pressure_stays_tenants_with_ever_less_work_are_refused(seconds: float, refused: int) -> None:
    scene = Scene().spent(**SHARES)
    assert scene.refused(*SHARES) == ["busy"]
    scene.clock.advance(seconds)
    scene.spent(**SHARES)
    assert scene.refused(*SHARES) == [*SHARES][:refused]


def test_the_pressure_of_before_does_not_count() -> None:
    scene = Scene().spent(busy=0.3, quiet=0.2)
    assert scene.refused("busy", "quiet") == ["busy"]
    scene.clock.advance(5)
    scene.pressure = 0
    assert scene.refused("busy", "quiet") == []
    scene.pressure = 2
    assert scene.refused("busy", "quiet") == ["busy"]


def test_a_flood_that_is_over_is_forgotten() -> None:
    scene = Scene().spent(flood=1, steady=0.1)
    for _ in range(15):
        scene.clock.advance(1)
        scene.spent(steady=0.1)
    assert scene.work.share("flood") < 0.2 < 1 < scene.work.share("steady")
    scene.clock.advance(60)
    assert scene.work.share("flood") == scene.work.share("steady") == 0


def test_a_large_request_is_refused_unread_only_beside_other_tenants() -> None:
    scene = Scene().spent(busy=0.3)
    assert scene.work.refusal_unread("busy") == ""
    scene.spent(quiet=0.1)
    assert scene.work.refusal_unread("busy")
    assert scene.work.refusal_unread("quiet") == ""
    scene.pressure = 0.5
    assert scene.work.refusal_unread("busy") == ""


def test_lag_by_other_processes_refuses_only_large_requests_of_tenants_above_their_fair_share() -> None:
    work = WorkShares(lambda: 0.0, 0.85, PausedClock(), lag=lambda: 2.0)
    work.spend("large", 1.0, 2.0)
    assert not work.refusal_unread("large")
    work.spend("small", 1.0, 0.5)
    assert work.refusal_unread("large")
    assert not work.refusal_unread("small")
    assert not work.refusal("large")
