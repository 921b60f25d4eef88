"""Traces: one per request, across every hop, over OTLP. Metrics live with the code they measure (prometheus_client).

Without an OTLP endpoint nothing is recorded, but ids are still made and passed on, so that logs, events and error
messages always carry a trace id.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBasedTraceIdRatio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Metadata = tuple[tuple[str, str], ...]

_PROPAGATOR = TraceContextTextMapPropagator()
_tracer = trace.get_tracer("hedgerow")


def setup(service: str, endpoint: str, ratio: float) -> TracerProvider:
    """Install the process's tracer; call `shutdown()` on what comes back to flush it."""
    sampler = ParentBasedTraceIdRatio(ratio) if endpoint else ALWAYS_OFF
    provider = TracerProvider(resource=Resource.create({"service.name": service}), sampler=sampler)
    if endpoint:
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https"), timeout=2)
        provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=500))
    trace.set_tracer_provider(provider)
    return provider


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


def propagate(span: trace.Span | None = None) -> Metadata:
    """gRPC metadata that makes the callee's spans children of `span`, or of the current one."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span) if span else None)
    return tuple(carrier.items())


@contextmanager
def server_span(name: str, metadata: Iterable[tuple[str, str | bytes]]) -> Iterator[trace.Span]:
    """The span of one call served, current while the call runs."""
    context = extract(metadata)
    with _tracer.start_as_current_span(
        name, context=context, kind=trace.SpanKind.SERVER, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


def start_span(name: str, kind: trace.SpanKind = trace.SpanKind.CLIENT) -> trace.Span:
    """A child of the current span; the caller ends it. Where nothing is recorded, it is the current span's stand-in."""
    current = trace.get_current_span()
    if not current.is_recording():
        return trace.NonRecordingSpan(current.get_span_context())
    return _tracer.start_span(name, kind=kind, record_exception=False)


def current_span() -> trace.Span:
    """The innermost span of the call being served."""
    return trace.get_current_span()


def trace_id(span: trace.Span | None = None) -> str:
    """32 hexadecimal digits; all zero outside a call."""
    return trace.format_trace_id((span or trace.get_current_span()).get_span_context().trace_id)


class _TraceIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.trace_id = trace_id() if trace.get_current_span() is not trace.INVALID_SPAN else "-"
        return True


def setup_logging(service: str, level: str) -> None:
    """Log lines carry the service's name and the trace id of the request they belong to."""
    handler = logging.StreamHandler()
    handler.addFilter(_TraceIdFilter())
    handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {service} %(name)s [%(trace_id)s] %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("httpx", "httpcore", "opentelemetry"):
        logging.getLogger(noisy).setLevel("WARNING")
