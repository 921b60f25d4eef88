"""How benchmarks sum up their samples."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

COMMON = (50.0, 95.0, 99.0)
TO_THE_TAIL = (*COMMON, 99.9)


def percentiles(values: Sequence[float], digits: int = 3, percents: Sequence[float] = COMMON) -> dict[str, float]:
    """`p50`, `p95`, `p99`, `p999`, … of at least two values, which may be infinite. Between two values it is a line."""
    ordered = sorted(values)
    if len(ordered) < 2:
        raise ValueError(f"percentiles: at least two values, got {len(ordered)}")
    return {f"p{percent:g}".replace(".", ""): round(_at(ordered, percent / 100), digits) for percent in percents}


def _at(ordered: Sequence[float], share: float) -> float:
    place, beyond = divmod(round((len(ordered) - 1) * share, 9), 1)
    lower = ordered[int(place)]
    return lower * (1 - beyond) + ordered[int(place) + 1] * beyond if beyond else lower


def cpu_s(pid: int) -> float:
    """The processor time that a process has spent so far, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
