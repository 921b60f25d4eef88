"""Traces: one per request, across all services, over OTLP. Metrics are defined beside the code they measure
(prometheus_client).

Without an OTLP endpoint no span is recorded or propagated, but a service still makes an id for each call for its logs,
events and error messages.
"""

from __future__ import annotations

import contextvars
import random
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes
from prometheus_client import REGISTRY

if TYPE_CHECKING:
    from services.runtime.dropped_spans import DroppedSpans

Metadata = tuple[tuple[str, str], ...]
LONG_S = (10, 15, 20, 30, 45, 60, 90, 120)  # upper buckets of latency histograms: a budget may last 120 s
_EXPORT_S = 30.0  # for the export of a batch, in which the collector may restart
_WAITING_SPANS = 8_192  # in the queue, 25 MB; later ones are dropped
_BATCH_SPANS = 64  # less than the SDK's 512: a batch is encoded at once, while requests wait for Python's lock
_OTLP_PORT = 4317
_LAST_EXPORT_S = 2.0  # of a process that stops
_LONGEST_STATE = 512  # characters of a `tracestate`, as W3C has it: gRPC refuses calls with 8 KiB of metadata

_PROPAGATOR = TraceContextTextMapPropagator()
_IDS = RandomIdGenerator()
# The service of the current task, where several share a process: for its log lines and its spans.
SERVICE: contextvars.ContextVar[str] = contextvars.ContextVar("service", default="")
_named: dict[str, str] = {}  # the service.name of spans, by the name of the service
_tracers: dict[str, trace.Tracer] = {}  # likewise, from the first endpoint on
_tracer = trace.get_tracer("hedgerow")
_provider: TracerProvider | None = None


class _RandomShare(Sampler):
    """Records a share of traces at random, independent of trace ids, because callers can choose those."""

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
    """Records `ratio` of the traces that begin here. Of the traces that a caller samples: all if `trusting`, else
    `ratio`. A trace that a caller does not sample is not recorded."""
    by_share = _RandomShare(ratio)
    return ParentBased(by_share) if trusting else ParentBased(by_share, remote_parent_sampled=by_share)


class _Sampling(Sampler):
    """Samples by `target`, which may be replaced."""

    target: Sampler = ALWAYS_OFF

    def should_sample(self, *given: Any, **named: Any) -> SamplingResult:
        return self.target.should_sample(*given, **named)

    def get_description(self) -> str:
        return self.target.get_description()


class _Exporting(SpanExporter):
    """Exports to `target` at `endpoint`, which may change, and counts dropped spans."""

    target: SpanExporter | None = None
    endpoint = ""
    dropped: DroppedSpans | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.target.export(spans) if self.target else SpanExportResult.FAILURE
        if self.dropped and result is SpanExportResult.SUCCESS:
            self.dropped.log(self.endpoint)
        elif self.dropped:
            self.dropped.not_taken(len(spans))
        return result

    def shutdown(self) -> None:
        if self.target:
            self.target.shutdown()


# For all spans of the process: a provider cannot replace its sampler or exporter.
_sampling, _exporting = _Sampling(), _Exporting()
_processor: BatchSpanProcessor | None = None


def setup(service: str, endpoint: str, sampler: Sampler) -> None:
    """Export this process's spans to an OTLP/gRPC endpoint; without one, make ids only. A new endpoint replaces the
    former one, and gets spans that are not exported yet. May block. Call `shutdown` at the end."""
    global _provider, _processor
    before, moves = _exporting.target, endpoint not in ("", _exporting.endpoint)
    if moves:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # 0.1 s, needed by few

        insecure = not endpoint.startswith("https")
        _exporting.target = OTLPSpanExporter(endpoint=_with_port(endpoint), insecure=insecure, timeout=_EXPORT_S)
        _exporting.endpoint = endpoint
    _sampling.target = sampler if endpoint else ALWAYS_OFF
    if before and moves:
        before.shutdown()
    if endpoint and _provider is None:
        _processor = _make_processor()
        _provider = _make_provider(service, shutdown_on_exit=True)
        trace.set_tracer_provider(_provider)
        for name in _named:
            _make_tracer(name)


def _with_port(endpoint: str) -> str:
    """The endpoint, with OTLP's port where a collector without TLS has none: gRPC would take that of HTTPS."""
    url = urlsplit(endpoint)
    return endpoint if url.scheme == "https" or url.port else f"http://{url.netloc}:{_OTLP_PORT}"


def _make_processor() -> BatchSpanProcessor:
    from services.runtime.dropped_spans import DroppedSpans

    _exporting.dropped = dropped = DroppedSpans()
    REGISTRY.register(dropped)
    return BatchSpanProcessor(
        _exporting,
        _WAITING_SPANS,
        schedule_delay_millis=500,
        max_export_batch_size=_BATCH_SPANS,
        meter_provider=dropped.meters,
    )


def name_spans(name: str, service: str) -> None:
    """Give the spans of tasks whose `SERVICE` is `name` the service.name `service`."""
    _named[name] = service
    if _provider is not None and name not in _tracers:
        _make_tracer(name)


def _make_tracer(name: str) -> None:
    _tracers[name] = _make_provider(_named[name], shutdown_on_exit=False).get_tracer("hedgerow")


def _make_provider(service: str, *, shutdown_on_exit: bool) -> TracerProvider:
    resource = Resource.create({"service.name": service})
    made = TracerProvider(resource=resource, sampler=_sampling, shutdown_on_exit=shutdown_on_exit)
    if _processor:
        made.add_span_processor(_processor)
    return made


def shutdown() -> None:
    """Export waiting spans, for some seconds at most."""
    if _provider is None:
        return
    giving_up = threading.Timer(_LAST_EXPORT_S, _exporting.shutdown)  # ends an export that waits for the collector
    giving_up.start()
    _provider.shutdown()
    giving_up.cancel()
    if _exporting.dropped:
        _exporting.dropped.log(_exporting.endpoint)


class _MetadataGetter(Getter[Iterable[tuple[str, str | bytes]]]):
    def get(self, carrier: Iterable[tuple[str, str | bytes]], key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key and isinstance(value, str)]
        return found if found and sum(map(len, found)) <= _LONGEST_STATE else None

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


def _unrecorded_span(metadata: Iterable[tuple[str, str | bytes]]) -> trace.Span:
    """An unrecorded span with the caller's trace id, or a new one."""
    traced = "traceparent" in dict(metadata)
    caller = trace.get_current_span(extract(metadata)).get_span_context() if traced else trace.INVALID_SPAN_CONTEXT
    trace_id = caller.trace_id or _IDS.generate_trace_id()
    return trace.NonRecordingSpan(trace.SpanContext(trace_id, _IDS.generate_span_id(), is_remote=False))


class _Current:
    """Makes `span` the current one inside the block, and ends it after that."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span):
        self._span = span

    def __enter__(self) -> trace.Span:
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(self, *_: object) -> None:
        context.detach(self._token)
        self._span.end()


def server_span(name: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[trace.Span]:
    """The server span of one call, current while the call runs."""
    if _provider is None:
        return _Current(_unrecorded_span(metadata))
    return _Current(
        _tracers.get(SERVICE.get(), _tracer).start_span(
            name, extract(metadata), trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
        )
    )


def start_span(name: str, kind: trace.SpanKind = trace.SpanKind.CLIENT, parent: trace.Span | None = None) -> trace.Span:
    """A child of `parent`, or of the current span; the caller ends it. An unrecorded span if the parent is not
    recorded."""
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


def internal_span(name: str) -> AbstractContextManager[trace.Span]:
    """A child of the current span, itself current for what runs inside."""
    return _Current(start_span(name, trace.SpanKind.INTERNAL))


def trace_id(span: trace.Span | None = None) -> str:
    """The trace id as 32 hexadecimal digits; all zero outside a call."""
    return trace.format_trace_id((span or trace.get_current_span()).get_span_context().trace_id)
