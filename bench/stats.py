"""How benchmarks sum up their samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def percentiles(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """p50, p95 and p99 of at least two values."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {f"p{percent}": round(cuts[percent - 1], digits) for percent in (50, 95, 99)}
