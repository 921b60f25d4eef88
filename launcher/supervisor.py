"""Keeps one service running: when its process ends, another is started after a pause that grows up to a bound, and is
short again once a process has lived for long.

Failures of this machine end no service: a full disk, a log that was deleted, a terminal that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hedgerow.restarts import Pauses
from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec

START_TIMEOUT_S = 600.0  # a large model on a slow disk

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
        self._pauses = Pauses()

    async def start(self) -> ServiceProcess:
        """Start the service, and return once it serves. Raises `ServiceFailed`."""
        try:
            self.process = process = ServiceProcess(self.spec, self._log_dir)
        except OSError as error:
            raise ServiceFailed(f"{self.spec.name} cannot be started: {error}") from None
        self._say("starting")
        await process.wait_serving(START_TIMEOUT_S)
        self._say("serving")
        return process

    async def change(self, spec: ServiceSpec) -> bool:
        """Change the process to `spec`. Returns False, without a change, if it needs a restart. Raises `ServiceFailed`,
        and may then serve a part of `spec`."""
        process = self.process
        if not (process and process.can_change(spec)):
            return False
        self.spec = spec
        await process.change(spec, START_TIMEOUT_S)
        return True

    async def keep_running(self, process: ServiceProcess | None) -> None:
        """Restart the process each time it ends, and start the first one. Runs until cancelled."""
        process = process or await self._start_again(0.0)
        while True:
            began = asyncio.get_running_loop().time()
            code = await process.wait()
            self._say("died", f"exit code {code}, starting it again\n{process.tail()}")
            process = await self._start_again(asyncio.get_running_loop().time() - began)

    async def _start_again(self, lived_s: float) -> ServiceProcess:
        pause_s = self._pauses.after(lived_s)
        while True:
            await asyncio.sleep(pause_s)
            try:
                if busy := self.spec.busy:  # health would be that of the process that has it
                    raise ServiceFailed(f"port {busy.port} is in use")
                return await self.start()
            except (ServiceFailed, OSError) as error:
                await self._end()
                pause_s = self._pauses.after(0.0)
                self._say("died", f"again in {pause_s:g} s: {error}")

    def _say(self, state: State, detail: str = "") -> None:
        with suppress(OSError):  # of the listener
            self._report(Change(self.spec.name, state, detail))

    async def stop(self) -> None:
        """Stop the service, if it was started."""
        if self.process:
            self._say("stopping")
            await self._end()
            self._say("stopped")

    async def _end(self) -> None:
        if self.process:
            await self.process.stop()
