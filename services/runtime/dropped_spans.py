"""Counts the spans that never reach the collector.

The OpenTelemetry SDK counts those that find the queue of its processor full, in metrics of its own; those of a batch
that the collector does not take are counted here. Both are in `hedgerow_spans_dropped_total`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from opentelemetry.sdk.environment_variables import OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

_PROCESSED = "otel.sdk.processor.span.processed"
_log = logging.getLogger(__name__)


class DroppedSpans(Collector):
    """The counts of one process. `meters` is for its span processor."""

    def __init__(self) -> None:
        os.environ.setdefault(OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED, "true")  # else a processor counts nothing
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self._not_taken = self._logged = 0

    def not_taken(self, count: int) -> None:
        """The collector did not take a batch of `count` spans."""
        self._not_taken += count

    def log(self, endpoint: str) -> None:
        """Log how many spans were dropped since the last time, if any were."""
        total = sum(self._counts().values())
        if total > self._logged:
            _log.warning("%d spans were dropped: %s did not take them in time", total - self._logged, endpoint)
            self._logged = total

    def collect(self) -> Iterator[Metric]:
        """The metrics for Prometheus."""
        family = CounterMetricFamily(
            "hedgerow_spans_dropped", "Spans that never reached the collector.", labels=["why"]
        )
        for why, count in self._counts().items():
            family.add_metric([why], count)
        yield family

    def _counts(self) -> dict[str, int]:
        return {"queue_full": sum(self._refused_by_the_queue()), "not_taken": self._not_taken}

    def _refused_by_the_queue(self) -> Iterator[int]:
        read = self._reader.get_metrics_data()
        for resource in read.resource_metrics if read else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == _PROCESSED and isinstance(metric.data, Sum):
                        yield from (
                            int(point.value)
                            for point in metric.data.data_points
                            if ERROR_TYPE in (point.attributes or {})
                        )
