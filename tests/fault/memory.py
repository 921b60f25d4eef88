"""The most memory a process had at once, as Linux counts it, and what its container may have."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.conftest import REPOSITORY
from tests.forked import ServiceProcess


def forget_peak(process: ServiceProcess) -> None:
    """Count from here on."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_mib(process: ServiceProcess) -> float:
    """In MiB, resident."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def container_mib(service: str) -> float:
    """The memory limit of a service's container in the compose file."""
    limit: str = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"][service]["mem_limit"]
    return float(limit[:-1]) * {"m": 1, "g": 1024}[limit[-1]]
