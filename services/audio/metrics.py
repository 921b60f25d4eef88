"""Metrics of the audio service for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from services.runtime.telemetry import LONG_S

OPEN = Gauge("hedgerow_audio_open", "Open streams and recordings.", ["kind"])
REFUSED = Counter("hedgerow_audio_refused", "Streams and recordings refused by admission control.", ["kind", "why"])
GAVE_WAY = Counter("hedgerow_audio_gave_way", "Streams and recordings that were preempted by another tenant's.")
AUDIO = Counter("hedgerow_audio_seconds", "Audio received.", ["kind"])
BUSY = Counter("hedgerow_audio_busy_seconds", "Time the model was busy.", ["kind"])
WAIT = Histogram(
    "hedgerow_audio_wait_seconds", "Time that a piece of work waited for the model.", ["kind"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, *LONG_S),
)  # fmt: skip
BEHIND = Counter("hedgerow_audio_behind", "Times that a stream was notified of delay.")
LOAD = Gauge("hedgerow_audio_load", "Share of the last 10 s in which the model was busy.")
