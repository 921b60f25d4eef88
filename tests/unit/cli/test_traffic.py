"""Requests a second, percentiles and errors, read from two scrapes of a gateway's metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.console import Console

from hedgerow_cli import traffic
from hedgerow_cli.model_load import ModelLoad
from hedgerow_cli.scrape import MetricSample, quantile, read
from hedgerow_cli.traffic import Flow, between
from hedgerow_cli.traffic_view import tables

START = 1_000.0


def page(acme: int, slow: int = 0, errors: int = 0, failed: int = 0, more: str = "") -> list[MetricSample]:
    """Metrics after so many requests of acme's that took up to 0.1 s, and so many that took up to 0.5 s."""
    return read(f"""\
process_start_time_seconds {START}
hedgerow_request_seconds_bucket{{le="0.1",tenant="acme"}} {acme}
hedgerow_request_seconds_bucket{{le="0.5",tenant="acme"}} {acme + slow}
hedgerow_request_seconds_bucket{{le="+Inf",tenant="acme"}} {acme + slow}
hedgerow_request_seconds_count{{tenant="acme"}} {acme + slow}
hedgerow_errors_total{{reason="QUOTA_EXCEEDED",tenant="beta"}} {errors}
hedgerow_total_seconds_bucket{{cache="miss",le="+Inf",model="quick"}} {acme}
hedgerow_total_seconds_count{{cache="miss",model="quick"}} {acme}
hedgerow_attempts_total{{kind="first",model="quick",outcome="ok"}} {acme}
hedgerow_attempts_total{{kind="first",model="quick",outcome="failed"}} {failed}
hedgerow_attempts_total{{kind="first",model="quick",outcome="lost"}} {failed}
hedgerow_attempts_total{{kind="first",model="quick",outcome="refused"}} {failed}
hedgerow_in_flight{{limiter="llm quick"}} 3.0
{more}
""")


def test_requests_between_two_scrapes_are_counted_by_tenant_and_model() -> None:
    seen = between(page(100, errors=3), page(120, slow=20, errors=9, failed=4), over_s=2.0)
    assert seen.mesh == Flow(23.0, 3.0, 100.0, pytest.approx(492.0))
    assert seen.tenants == {"acme": Flow(20.0, 0.0, 100.0, pytest.approx(492.0)), "beta": Flow(3.0, 3.0)}
    assert seen.models["quick"] == Flow(12.0, 2.0, 0.0, 0.0)
    assert seen.errors == {("beta", "QUOTA_EXCEEDED"): 3.0}
    assert seen.busy == {"quick": ModelLoad(in_flight=3)}


def test_workers_are_added_up_and_one_that_started_again_counts_from_0() -> None:
    assert between(page(10) + page(10), page(20) + page(30), over_s=1.0).mesh.per_s == 30.0
    assert between(page(100), page(7), over_s=1.0).mesh.per_s == 7.0


def test_without_requests_in_the_window_traffic_counts_since_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "scrape", lambda _: page(100))
    monkeypatch.setattr("time.time", lambda: START + 50)
    monkeypatch.setattr("time.sleep", lambda _: None)
    seen = traffic.watch(["http://gateway/metrics"], 1.0)
    assert seen is not None
    assert (seen.since_start, seen.over_s, seen.mesh.per_s) == (True, 50.0, 2.0)
    monkeypatch.setattr(traffic, "scrape", lambda _: [])
    assert traffic.watch(["http://gateway/metrics"], 1.0) is None


@pytest.mark.parametrize(
    ("over_s", "window"), [(0.5, "0 s"), (50, "50 s"), (599, "599 s"), (600, "10 min"), (36_000, "10 h")]
)
def test_the_time_since_the_start_has_a_unit_that_shows_it(over_s: float, window: str) -> None:
    since_start = replace(between(page(1), page(2), over_s=1.0), over_s=over_s, since_start=True)
    assert next(tables(since_start)).columns[0].header == f"requests, over the {window} since the start"


def test_a_percentile_is_the_one_of_prometheus() -> None:
    buckets = {0.1: 10.0, 0.5: 90.0, math.inf: 100.0}
    assert quantile(0.5, buckets) == pytest.approx(0.3)
    assert quantile(0.05, buckets) == pytest.approx(0.05)
    assert quantile(0.99, buckets) == 0.5
    assert quantile(0.5, {0.1: 0.0, math.inf: 0.0}) is None


def test_problems_of_the_mesh_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: START)
    after = page(
        1,
        more=f"""\
hedgerow_shared_state_up 0.0
hedgerow_write_behind_dropped_total{{kind="store"}} 8.0
hedgerow_certificate_expires_seconds{{identity="gateway"}} {START + 7_200}
hedgerow_certificate_expires_seconds{{identity="edge"}} {START + 30 * 86_400}
hedgerow_certificate_due_seconds{{identity="gateway"}} {START - 3_600}
hedgerow_certificate_due_seconds{{identity="edge"}} {START + 23 * 86_400}
hedgerow_breaker_open{{backend="quick@127.0.0.1:1"}} 1.0
""",
    )
    assert between(page(1), after, over_s=2.0).warnings == [
        "Redis does not answer: each process uses its own memory",
        "answers are not stored: 4.0/s",
        "the certificate of gateway expires in 2.0 h",
        "model quick: calls fail: the gateway's breaker is open",
    ]


def test_the_tables_name_the_window_and_the_reason_of_errors() -> None:
    console = Console(width=120, highlight=False)
    with console.capture() as shown:
        for table in tables(between(page(100), page(120, errors=5), over_s=1.0)):
            console.print(table)
    lines = [line.split() for line in shown.get().splitlines()]
    assert lines[0] == ["requests,", "over", "1.0", "s", "req/s", "errors/s", "p50", "ms", "p99", "ms"]
    assert lines[1] == ["all", "25.0", "5.0", "50", "99"]
    assert ["tenant", "beta", "5.0", "5.0", "-", "-"] in lines
    assert lines[-1] == ["QUOTA_EXCEEDED", "5.0", "beta"]
