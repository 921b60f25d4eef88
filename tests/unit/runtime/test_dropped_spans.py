"""Spans that a collector does not take in time: how long they wait, and that each one that is lost is counted."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from services.runtime import telemetry

ENDPOINT = "http://127.0.0.1:4317"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Answers an export once `goes_on` is set. `deadline_s` is the time that the first one had when it came."""

    def __init__(self) -> None:
        self.goes_on, self.came, self.deadline_s = asyncio.Event(), asyncio.Event(), 0.0

    async def Export(self, request: Any, context: Any) -> trace_service_pb2.ExportTraceServiceResponse:
        self.deadline_s = self.deadline_s or context.time_remaining()
        self.came.set()
        await self.goes_on.wait()
        return trace_service_pb2.ExportTraceServiceResponse()


class Held(SpanExporter):
    """Takes a batch once `goes_on` is set, if it `succeeds`."""

    def __init__(self, succeeds: bool = True):
        self.came, self.goes_on = threading.Event(), threading.Event()
        self._result = SpanExportResult.SUCCESS if succeeds else SpanExportResult.FAILURE

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.came.set()
        self.goes_on.wait()
        return self._result


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> CollectorRegistry:
    """The registry of a process whose telemetry has not begun."""
    monkeypatch.setattr(telemetry, "_exporting", telemetry._Exporting())
    monkeypatch.setattr(telemetry, "_sampling", telemetry._Sampling())
    monkeypatch.setattr(telemetry, "REGISTRY", registry := CollectorRegistry())
    return registry


def dropped(registry: CollectorRegistry, why: str) -> float | None:
    return registry.get_sample_value("hedgerow_spans_dropped_total", {"why": why})


def test_spans_that_find_the_queue_full_are_counted_and_logged_once_the_collector_goes_on(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "_WAITING_SPANS", 512)
    telemetry._exporting.target, telemetry._exporting.endpoint = (held := Held()), ENDPOINT
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(telemetry._make_processor())
    tracer = provider.get_tracer("t")
    tracer.start_span("first").end()
    assert held.came.wait(60)
    for _ in range(520):
        tracer.start_span("later").end()
    assert dropped(registry, "queue_full") == 8
    held.goes_on.set()
    with caplog.at_level(logging.WARNING, "services.runtime.dropped_spans"):
        provider.shutdown()
    assert [record.message for record in caplog.records if "dropped" in record.name] == [
        f"8 spans were dropped: {ENDPOINT} did not take them in time"
    ]
    assert dropped(registry, "not_taken") == 0


def test_spans_that_the_collector_does_not_take_are_counted(registry: CollectorRegistry) -> None:
    telemetry._exporting.target = held = Held(succeeds=False)
    held.goes_on.set()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(telemetry._make_processor())
    for _ in range(3):
        provider.get_tracer("t").start_span("a").end()
    provider.shutdown()
    assert (dropped(registry, "not_taken"), dropped(registry, "queue_full")) == (3, 0)


async def test_a_batch_waits_half_a_minute_for_a_silent_collector_and_not_at_the_end_of_the_process(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(telemetry, "_provider", provider)
    monkeypatch.setattr(telemetry, "_LAST_EXPORT_S", 0.0)
    telemetry.setup("gateway", endpoint, telemetry.sampler(1.0, trusting=False))
    provider.add_span_processor(telemetry._make_processor())
    provider.get_tracer("t").start_span("a").end()
    await collector.came.wait()
    assert 10 < collector.deadline_s <= 30
    await asyncio.to_thread(telemetry.shutdown)
    assert dropped(registry, "not_taken") == 1
    collector.goes_on.set()
    await server.stop(0)
