"""The most memory a process had at once, as Linux counts it."""

from __future__ import annotations

from pathlib import Path

from tests.forked import ServiceProcess


def forget_peak(process: ServiceProcess) -> None:
    """Count from here on."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def peak_mib(process: ServiceProcess) -> float:
    """In MiB, resident."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
