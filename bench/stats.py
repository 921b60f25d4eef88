"""How benchmarks sum up their samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import psutil

COMMON = (50.0, 95.0, 99.0)
TO_THE_TAIL = (*COMMON, 99.9)


def percentiles(values: Sequence[float], digits: int = 3, percents: Sequence[float] = COMMON) -> dict[str, float]:
    """`p50`, `p95`, `p99`, `p999`, … of at least two values; `percents` have one decimal at most."""
    cuts = statistics.quantiles(values, n=1000, method="inclusive")
    return {f"p{percent:g}".replace(".", ""): round(cuts[round(percent * 10) - 1], digits) for percent in percents}


def cpu_s(pid: int) -> float:
    """The processor time that a process has spent so far, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
