"""Traces: one per request, across every hop, over OTLP. Metrics live with the code they measure (prometheus_client).

Without an OTLP endpoint nothing is recorded and nothing passed on, but a service still makes an id for each call, so
that its logs, events and error messages always carry one.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

Metadata = tuple[tuple[str, str], ...]
LONG_S = (10, 15, 20, 30, 45, 60, 90, 120)  # the last bounds of histograms of times: a budget may last 120 s

_PROPAGATOR = TraceContextTextMapPropagator()
_IDS = RandomIdGenerator()
# The name of the service whose task runs, where several share a process: of its lines in the log, and of its spans.
SERVICE: contextvars.ContextVar[str] = contextvars.ContextVar("service", default="")
_tracers: dict[str, trace.Tracer] = {}  # by that name
_tracer = trace.get_tracer("hedgerow")
_provider: TracerProvider | None = None
_processor: BatchSpanProcessor | None = None  # one for all of the process


class _Drawn(Sampler):
    """Records a share of traces, whatever their ids: callers choose those of their own."""

    def __init__(self, share: float):
        self._share = share

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: trace.SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[trace.Link] | None = None,
        trace_state: trace.TraceState | None = None,
    ) -> SamplingResult:
        recorded = random.random() < self._share
        state = trace.get_current_span(parent_context).get_span_context().trace_state
        return SamplingResult(Decision.RECORD_AND_SAMPLE if recorded else Decision.DROP, attributes, state)

    def get_description(self) -> str:
        return f"Drawn{{{self._share}}}"


def sampler(ratio: float, *, trusting: bool) -> Sampler:
    """Records `ratio` of the traces that begin here; of those that callers record as well where it is not `trusting`,
    and all of them where it is. A trace that a caller does not record is not recorded here."""
    drawn = _Drawn(ratio)
    return ParentBased(drawn) if trusting else ParentBased(drawn, remote_parent_sampled=drawn)


def setup(service: str, endpoint: str, sampler: Sampler) -> None:
    """Export this process's spans to an OTLP/gRPC endpoint; without one, make ids only. Call `shutdown` at the end."""
    global _provider, _processor
    if not endpoint:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # 0.1 s that few processes need

    _provider = TracerProvider(resource=Resource.create({"service.name": service}), sampler=sampler)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https"), timeout=2)
    _processor = BatchSpanProcessor(exporter, schedule_delay_millis=500)
    _provider.add_span_processor(_processor)
    trace.set_tracer_provider(_provider)


def name_spans(name: str, service: str) -> None:
    """Give the spans of tasks whose `SERVICE` is `name` the service.name `service`. Call it after `setup`."""
    if _provider is None or _processor is None or name in _tracers:
        return
    named = TracerProvider(
        resource=Resource.create({"service.name": service}), sampler=_provider.sampler, shutdown_on_exit=False
    )
    named.add_span_processor(_processor)
    _tracers[name] = named.get_tracer("hedgerow")


def shutdown() -> None:
    """Send what waits, for some seconds at most."""
    if _provider is not None:
        _provider.shutdown()


class _MetadataGetter(Getter[Iterable[tuple[str, str | bytes]]]):
    def get(self, carrier: Iterable[tuple[str, str | bytes]], key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key and isinstance(value, str)]
        return found or None

    def keys(self, carrier: Iterable[tuple[str, str | bytes]]) -> list[str]:
        return [name for name, _ in carrier]


_GETTER = _MetadataGetter()


def extract(metadata: Iterable[tuple[str, str | bytes]]) -> Context:
    """The caller's trace context, from gRPC metadata."""
    return _PROPAGATOR.extract(metadata, context=Context(), getter=_GETTER)


def propagate(span: trace.Span) -> Metadata:
    """gRPC metadata that makes the callee's spans children of `span`; none where it is not recorded."""
    if not span.is_recording():
        return ()
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return tuple(carrier.items())


def _stand_in(metadata: Iterable[tuple[str, str | bytes]]) -> trace.Span:
    """A span that is not recorded: it has the caller's trace id, or one of its own."""
    traced = any(name == "traceparent" for name, _ in metadata)
    caller = trace.get_current_span(extract(metadata)).get_span_context() if traced else trace.INVALID_SPAN_CONTEXT
    trace_id = caller.trace_id or _IDS.generate_trace_id()
    return trace.NonRecordingSpan(trace.SpanContext(trace_id, _IDS.generate_span_id(), is_remote=False))


@contextmanager
def server_span(name: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[trace.Span]:
    """The span of one call served, current while the call runs."""
    if _provider is None:
        span: trace.Span = _stand_in(metadata)
    else:
        span = _tracers.get(SERVICE.get(), _tracer).start_span(
            name, extract(metadata), trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        )
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    finally:
        context.detach(token)
        span.end()


def start_span(name: str, kind: trace.SpanKind = trace.SpanKind.CLIENT, parent: trace.Span | None = None) -> trace.Span:
    """A child of `parent`, or of the current span; the caller ends it. Where nothing is recorded, it is that span's
    stand-in."""
    above = parent or trace.get_current_span()
    if not above.is_recording():
        return trace.NonRecordingSpan(above.get_span_context())
    tracer = _tracers.get(SERVICE.get(), _tracer)
    return tracer.start_span(name, trace.set_span_in_context(above), kind, record_exception=False)


def within(span: trace.Span) -> contextvars.Context:
    """A context for a task, in which `span` is the current one."""
    inside = contextvars.copy_context()
    inside.run(context.attach, trace.set_span_in_context(span))
    return inside


@contextmanager
def internal_span(name: str) -> Iterator[trace.Span]:
    """A child of the current span, itself current for what runs inside."""
    span = start_span(name, trace.SpanKind.INTERNAL)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield span
    finally:
        context.detach(token)
        span.end()


def trace_id(span: trace.Span | None = None) -> str:
    """32 hexadecimal digits; all zero outside a call."""
    return trace.format_trace_id((span or trace.get_current_span()).get_span_context().trace_id)
