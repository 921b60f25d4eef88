from __future__ import annotations

import random

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from services.runtime import telemetry

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def test_a_call_has_a_trace_id_also_where_nothing_is_exported():
    with telemetry.server_span("a/b", ()) as span:
        first = telemetry.trace_id()
        assert int(first, 16)
        assert telemetry.trace_id(span) == first
    with telemetry.server_span("a/b", ()):
        assert telemetry.trace_id() != first
    assert not int(telemetry.trace_id(), 16)  # outside a call


def test_a_call_joins_its_callers_trace():
    with telemetry.server_span("a/b", (("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01"),)):
        assert telemetry.trace_id() == TRACE_ID


def test_nothing_is_passed_on_where_nothing_is_recorded():
    with telemetry.server_span("a/b", ()) as span:
        assert telemetry.propagate(span) == ()


@pytest.mark.parametrize(
    ("ratio", "trusting", "sampled", "recorded"),
    [
        (0.0, True, None, False),
        (0.0, True, "01", True),
        (0.0, False, "01", False),  # a caller has no say
        (1.0, False, "01", True),
        (1.0, False, "00", False),
        (1.0, False, None, True),
    ],
)
def test_callers_have_a_say_in_what_is_recorded_where_they_are_trusted(
    ratio: float, trusting: bool, sampled: str | None, recorded: bool
):
    tracer = TracerProvider(sampler=telemetry.sampler(ratio, trusting=trusting)).get_tracer("t")
    parent = f"00-{'0' * 31}1-b7ad6b7169203331-{sampled}"  # the lowest id: a share by ids always has it
    caller = telemetry.extract([("traceparent", parent), ("tracestate", "a=b")] if sampled else [])
    context = tracer.start_span("a/b", caller).get_span_context()
    assert context.trace_flags.sampled is recorded
    assert context.trace_state.get("a") == ("b" if sampled else None)


def test_a_state_of_a_trace_that_would_fill_the_metadata_of_calls_is_left_out():
    parent = ("traceparent", f"00-{TRACE_ID}-b7ad6b7169203331-01")
    for members, kept in (([250], 1), ([250, 250], 2), ([250, 250, 250], 0)):
        state = ",".join(f"k{index}={'v' * length}" for index, length in enumerate(members))
        caller = trace.get_current_span(telemetry.extract([parent, ("tracestate", state)])).get_span_context()
        assert (f"{caller.trace_id:032x}", len(caller.trace_state)) == (TRACE_ID, kept)


def test_a_caller_that_chooses_its_trace_ids_is_recorded_no_more_often():
    random.seed(7)
    tracer = TracerProvider(sampler=telemetry.sampler(0.1, trusting=False)).get_tracer("t")
    caller = telemetry.extract([("traceparent", f"00-{'0' * 31}1-b7ad6b7169203331-01")])
    spans = [tracer.start_span("a/b", caller) for _ in range(2_000)]
    assert 150 <= sum(span.is_recording() for span in spans) <= 250  # 200 expected, 13.4 the standard deviation


def test_an_endpoint_that_stays_keeps_its_exporter_and_the_spans_under_way(monkeypatch: pytest.MonkeyPatch):
    exporting = telemetry._Exporting()
    monkeypatch.setattr(telemetry, "_exporting", exporting)
    monkeypatch.setattr(telemetry, "_sampling", telemetry._Sampling())
    monkeypatch.setattr(telemetry, "_provider", TracerProvider(shutdown_on_exit=False))
    telemetry.setup("gateway", "http://127.0.0.1:4317", telemetry.sampler(1.0, trusting=False))
    first = exporting.target
    telemetry.setup("gateway", "http://127.0.0.1:4317", telemetry.sampler(0.5, trusting=False))
    assert exporting.target is first, "another ratio closes no connection"
    telemetry.setup("gateway", "http://127.0.0.1:4318", telemetry.sampler(0.5, trusting=False))
    assert exporting.target is not first
    telemetry.setup("gateway", "http://collector/", telemetry.sampler(0.5, trusting=False))
    assert exporting.target._endpoint == "collector:4317", "not the port of HTTPS"
    exporting.shutdown()
