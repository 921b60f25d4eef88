"""How requests end is counted by tenant, and logged by reason."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from services.gateway.admission.quota import QuotaExceeded
from services.gateway.api.outcomes import MOST_TENANTS, OTHER, TENANT, Outcomes
from services.gateway.errors import ModelUnknown
from services.runtime.errors import Unavailable
from services.runtime.line_limit import EVERY_S
from tests.clock import PausedClock

LOGGER = "services.gateway.api.outcomes"


@pytest.fixture(autouse=True)
def acme() -> Iterator[None]:
    token = TENANT.set("acme")
    yield
    TENANT.reset(token)


def errors(tenant: str, reason: str) -> float:
    return REGISTRY.get_sample_value("hedgerow_errors_total", {"tenant": tenant, "reason": reason}) or 0.0


def times(tenant: str) -> float:
    return REGISTRY.get_sample_value("hedgerow_request_seconds_count", {"tenant": tenant}) or 0.0


def test_a_request_that_succeeds_has_a_time_and_one_that_fails_a_reason() -> None:
    before = times("acme"), errors("acme", "UNAVAILABLE")
    outcomes = Outcomes()
    for method in ("Generate", "POST", "GET", "Converse"):  # the last two are not timed
        outcomes.ended(method, 0.2)
    outcomes.ended("Generate", 0.2, Unavailable("quick: it is away"))
    assert (times("acme"), errors("acme", "UNAVAILABLE")) == (before[0] + 2, before[1] + 1)


def test_a_reason_of_a_tenant_has_one_line_a_minute_that_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    clock = PausedClock()
    outcomes = Outcomes(clock)
    for _ in range(3):
        outcomes.ended("POST", 0.1, Unavailable("quick: it is away"))
    outcomes.ended("POST", 0.1, QuotaExceeded("tenant acme: 5 requests a second", quota="requests"))
    clock.advance(EVERY_S)
    outcomes.ended("POST", 0.1, Unavailable("quick: it is away"))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "request of tenant acme failed: UNAVAILABLE: quick: it is away"),
        ("WARNING", "request of tenant acme failed: QUOTA_EXCEEDED: tenant acme: 5 requests a second"),
        ("WARNING", "request of tenant acme failed: UNAVAILABLE: quick: it is away; 2 more since the last line"),
    ]


def test_an_error_of_the_caller_is_no_warning_and_quotes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    Outcomes().ended("POST", 0.1, ModelUnknown("a-secret", "quick"))
    (record,) = caplog.records
    assert (record.levelname, record.message) == ("INFO", "request of tenant acme failed: MODEL_UNKNOWN")


def test_a_bug_is_counted_and_its_text_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    before = errors("acme", "INTERNAL")
    Outcomes().ended("POST", 0.1, RuntimeError("a secret"))
    assert errors("acme", "INTERNAL") == before + 1
    assert caplog.text == ""


def test_tenants_without_end_share_a_label() -> None:
    outcomes, before = Outcomes(), times(OTHER)
    for number in range(MOST_TENANTS + 5):
        TENANT.set(f"tenant {number}")
        outcomes.ended("POST", 0.1)
    assert times(OTHER) == before + 5
