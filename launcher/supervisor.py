"""Keeps one service running: when its process ends, another is started after a pause that grows up to a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec

START_TIMEOUT_S = 600.0  # a large model on a slow disk
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0

State = Literal["starting", "serving", "died", "stopping", "stopped"]


@dataclass(frozen=True)
class Change:
    """A service entered a state."""

    service: str
    state: State
    detail: str = ""


Report = Callable[[Change], None]


class Supervisor:
    """One service of a mesh. `process` is its latest process, None before the first."""

    def __init__(self, spec: ServiceSpec, log_dir: Path, report: Report):
        self.spec = spec
        self.process: ServiceProcess | None = None
        self._log_dir, self._report = log_dir, report

    async def start(self) -> ServiceProcess:
        """Start it and return once it serves; `ServiceFailed` when it does not."""
        self.process = process = ServiceProcess(self.spec, self._log_dir)
        self._report(Change(self.spec.name, "starting"))
        await process.wait_serving(START_TIMEOUT_S)
        self._report(Change(self.spec.name, "serving"))
        return process

    async def keep_running(self, process: ServiceProcess) -> None:
        """Start another each time the last one ends. Runs until it is cancelled."""
        while True:
            code = await process.wait()
            self._report(Change(self.spec.name, "died", f"exit code {code}, starting it again\n{process.tail()}"))
            process = await self._start_again()

    async def _start_again(self) -> ServiceProcess:
        pause_s = FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            try:
                return await self.start()
            except ServiceFailed as error:
                await self._end()
                self._report(Change(self.spec.name, "died", f"again in {pause_s:g} s: {error}"))

    async def stop(self) -> None:
        """Stop it, if it was started."""
        if self.process:
            self._report(Change(self.spec.name, "stopping"))
            await self._end()
            self._report(Change(self.spec.name, "stopped"))

    async def _end(self) -> None:
        if self.process:
            await self.process.stop()
