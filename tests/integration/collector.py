"""A real OTLP/gRPC endpoint that keeps the spans it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from tests.waiting import until


@dataclass(frozen=True)
class SeenSpan:
    service: str
    name: str
    span_id: bytes
    parent_id: bytes
    attributes: dict[str, object]
    events: tuple[str, ...]


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Spans by trace id in hexadecimal. `address` is host:port."""

    address: str = ""
    traces: dict[str, list[SeenSpan]] = field(default_factory=dict)
    exports: list[bytes] = field(default_factory=list)  # as they came, with all that is in them

    async def Export(self, request, context) -> trace_service_pb2.ExportTraceServiceResponse:
        self.exports.append(request.SerializeToString())
        for resource in request.resource_spans:
            service = next(kv.value.string_value for kv in resource.resource.attributes if kv.key == "service.name")
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {kv.key: _value(kv.value) for kv in span.attributes}
                    events = tuple(event.name for event in span.events)
                    seen = SeenSpan(service, span.name, span.span_id, span.parent_span_id, attributes, events)
                    self.traces.setdefault(span.trace_id.hex(), []).append(seen)
        return trace_service_pb2.ExportTraceServiceResponse()

    async def wait_for(self, trace_id: str, services: set[str], timeout_s: float = 30) -> list[SeenSpan]:
        """The trace's spans, once its root and every service's own have come."""
        await until(lambda: self._complete(self.traces.get(trace_id, []), services), timeout_s)
        return self.traces[trace_id]

    @staticmethod
    def _complete(spans: list[SeenSpan], services: set[str]) -> bool:
        return services <= {span.service for span in spans} and any(not span.parent_id for span in spans)


def _value(value) -> object:
    kind = value.WhichOneof("value")
    return [_value(item) for item in value.array_value.values] if kind == "array_value" else getattr(value, kind or "")


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield collector
    await server.stop(0)
