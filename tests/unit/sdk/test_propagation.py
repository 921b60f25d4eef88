"""The caller's span travels with the call."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id

from hedgerow._outgoing import Caller
from hedgerow._peer import Peer, trace_headers


def test_the_current_span_is_passed_on() -> None:
    with TracerProvider(shutdown_on_exit=False).get_tracer("test").start_as_current_span("caller") as span:
        headers = dict(trace_headers())
    assert headers["traceparent"].split("-")[1] == format_trace_id(span.get_span_context().trace_id)


def test_without_a_span_nothing_is_added() -> None:
    assert Caller(Peer("nowhere"), None).generate({"messages": "?"}).metadata == ()
