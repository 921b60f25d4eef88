"""Keeps one service running: when its process ends, another is started after a pause that grows up to a bound, and is
short again once a process has lived for long.

What fails on this machine meanwhile, a full disk, a log that was deleted, a terminal that is gone, ends no service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec
from launcher.shared_process import SharedProcess

START_TIMEOUT_S = 600.0  # a large model on a slow disk
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
STEADY_S = 30.0  # a process that lived so long has started well

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
        self._pause_s = FIRST_PAUSE_S

    async def start(self) -> ServiceProcess:
        """Start it and return once it serves; `ServiceFailed` when it does not."""
        try:
            kind = SharedProcess if self.spec.members else ServiceProcess
            self.process = process = kind(self.spec, self._log_dir)
        except OSError as error:
            raise ServiceFailed(f"{self.spec.name} cannot be started: {error}") from None
        self._say("starting")
        await process.wait_serving(START_TIMEOUT_S)
        self._say("serving")
        return process

    async def change(self, spec: ServiceSpec) -> bool:
        """Have its process serve what `spec` says. False, and nothing is done, where it cannot without being started
        again. Raises `ServiceFailed`, and may then serve a part of `spec`."""
        process = self.process
        if not (spec.members and isinstance(process, SharedProcess) and process.can_change(spec)):
            return False
        self.spec = spec
        await process.change(spec, START_TIMEOUT_S)
        return True

    async def keep_running(self, process: ServiceProcess | None) -> None:
        """Start another each time the last one ends; None: the first one too. Runs until it is cancelled."""
        process = process or await self._start_again()
        while True:
            began = asyncio.get_running_loop().time()
            code = await process.wait()
            if asyncio.get_running_loop().time() - began >= STEADY_S:
                self._pause_s = FIRST_PAUSE_S
            self._say("died", f"exit code {code}, starting it again\n{process.tail()}")
            process = await self._start_again()

    async def _start_again(self) -> ServiceProcess:
        while True:
            pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
            try:
                if busy := self.spec.busy:  # what answers there would be taken for it
                    raise ServiceFailed(f"port {busy.address.rpartition(':')[2]} is in use")
                return await self.start()
            except (ServiceFailed, OSError) as error:
                await self._end()
                self._say("died", f"again in {self._pause_s:g} s: {error}")

    def _say(self, state: State, detail: str = "") -> None:
        with suppress(OSError):  # of who hears it
            self._report(Change(self.spec.name, state, detail))

    async def stop(self) -> None:
        """Stop it, if it was started."""
        if self.process:
            self._say("stopping")
            await self._end()
            self._say("stopped")

    async def _end(self) -> None:
        if self.process:
            await self.process.stop()
