"""Carries the caller's current span to the gateway, so that both are parts of one trace."""

from __future__ import annotations

import sys


def trace_headers() -> tuple[tuple[str, str], ...]:
    """W3C headers as gRPC metadata; empty where the application does not use OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:  # never loaded, so no span can be current
        return ()
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return tuple((key.lower(), value) for key, value in carrier.items())
