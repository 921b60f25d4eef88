from __future__ import annotations

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
