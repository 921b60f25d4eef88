"""How many CPU cores this process may use: its affinity, and the CPU limit of its container.

Libraries that compute start a thread for each core of the affinity, which a container's CPU limit does not change: with
`limits.cpu: 2` on a node of 64 cores, 64 threads use up the quota of 2 and then all wait for the next period.
Source: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/scheduler/sched-bwc.html (cgroup v1).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_MOUNT, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_V1_CONTROLLERS = ("cpu,cpuacct", "cpu")  # the folder is named after all controllers that share it


def usable_cores(mount: Path = _MOUNT, membership: Path = _MEMBERSHIP) -> int:
    """The cores of the affinity (a cpuset is part of it), or the smallest CPU limit of the process's cgroups. A part of
    a core counts as one: short runs may use all of it."""
    available = len(os.sched_getaffinity(0))  # noqa: TID251  # the one place that adds the limit
    return min([available, *(max(1, math.ceil(limit)) for limit in _limits(mount, membership))])


def _limits(mount: Path, membership: Path) -> Iterator[float]:
    """The CPU limits of the process's cgroup and of those above it, in cores."""
    for folder in _folders(mount, membership):
        if limit := _v2(folder) or _v1(folder):
            yield limit


def _folders(mount: Path, membership: Path) -> Iterator[Path]:
    """The folders that may hold a limit. In a container the path may be the host's; then the mount itself is the
    container's cgroup."""
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            roots = [mount]
        elif "cpu" in controllers.split(","):
            roots = [mount / name for name in _V1_CONTROLLERS]
        else:
            continue
        for root in roots:
            own = PurePosixPath(path.lstrip("/"))
            yield from (root / each for each in (own, *own.parents))


def _v2(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
    return _share(quota, period)


def _v1(folder: Path) -> float | None:
    return _share(_text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip())


def _share(quota: str, period: str) -> float | None:
    """Microseconds of CPU time in each period; None for `max`, for -1, and where there is no file."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _text(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except (OSError, ValueError):
        return ""
