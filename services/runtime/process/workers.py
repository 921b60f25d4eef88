"""Several processes of one service on the same ports: a parent that serves nothing, and workers that the kernel shares
connections out to (SO_REUSEPORT). A connection stays with the worker it came to, and so do all calls on it.

The parent has the ports before any worker, and for as long as it lives: so a port may be chosen by the kernel, and a
second service on the same port is still refused. A worker that dies is started again, after a pause that
grows while it keeps dying; the others do not notice. A worker is a process of one service (`together.py`), which gets
orders from its parent as the parent gets them from `hedgerow up`: with new settings each worker exchanges its service
as it runs, so no call is refused. Workers end with their parent, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import uvloop

from hedgerow.orders import Orders
from hedgerow.restarts import Pauses
from services.runtime.process.config import RefusedSettings, ServiceSettings
from services.runtime.process.ports import Claims, PortTaken, places

Settings = TypeVar("Settings", bound=ServiceSettings)
SLACK_S = 4.0  # beyond the grace: for what is taken apart after the last call
_COMMAND = (sys.executable, "-m", "services.runtime.process")
_BAD_SETTINGS = 2  # the exit code of a process that cannot use its settings
_TOLD_TO_END = (0, -signal.SIGTERM)  # the latter where it had no handler yet
_log = logging.getLogger(__name__)


class Ordered(Protocol):
    """A service that an order asks for."""

    @property
    def name(self) -> str:
        """Its own, among those of a process."""

    @property
    def settings(self) -> ServiceSettings:
        """As they have been read."""

    @property
    def given(self) -> Mapping[str, Any]:
        """As the order has it."""


Follow = Callable[[Callable[[Sequence[Ordered]], Awaitable[None]]], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes; numbers count from 1."""

    number: int
    ports: Sequence[int]  # of the settings in `shared_addresses`, in their order

    def own(self, settings: Settings) -> Settings:
        """Its settings: the ports they share, and metrics on the port after the parent's, the next one, and so on."""
        addresses = zip(settings.shared_addresses, self.ports, strict=True)
        update = {name: _with_port(getattr(settings, name), port) for name, port in addresses}
        if settings.metrics_address:
            shared = int(settings.metrics_address.rpartition(":")[2])
            update["metrics_address"] = _with_port(settings.metrics_address, shared + self.number)
        return settings.model_copy(update=update)


def end_with_parent(grace_s: float) -> None:
    """Stop this process when its parent is gone, and kill it if it has not ended a while after the grace. Only the
    parent has the other end of the standard input."""

    def watch() -> None:
        ends = select.poll()
        ends.register(sys.__stdin__.fileno() if sys.__stdin__ else 0, 0)
        ends.poll()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_s + SLACK_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


async def _no_orders(_: object) -> None: ...


def main(given: Mapping[str, Any], settings: ServiceSettings, follow: Follow = _no_orders) -> int:
    """Run `settings.processes` workers of a service, as an order has `given` it, and what `follow` brings later, until
    they must stop; the exit code."""
    try:
        parent = _Parent(given, settings)
    except PortTaken as error:
        _log.error("%s", error)
        return 1
    code: int = uvloop.run(parent.run(follow))
    _log.info("stopped")
    return code


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"


class _Parent:
    """Keeps workers running."""

    def __init__(self, given: Mapping[str, Any], settings: ServiceSettings):
        self._given, self._settings = given, settings
        self._claims = Claims()
        self._claims.add(given["name"], settings)
        self._stop = asyncio.Event()
        self._orders: dict[int, Orders] = {}  # to the process that each worker has now
        self._serving = {number: asyncio.Event() for number in range(1, settings.processes + 1)}

    async def run(self, follow: Follow) -> int:
        """Until SIGTERM or SIGINT. 0 when all workers ended well."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        ports = self._claims.ports(self._settings)
        _log.info("%d workers on port %s", len(self._serving), " and ".join(map(str, ports)))
        async with asyncio.TaskGroup() as group:
            kept = [group.create_task(self._keep(number)) for number in self._serving]
            following = group.create_task(self._follow(follow))
            await self._stop.wait()
            following.cancel()
        return max(task.result() for task in kept)

    async def _follow(self, follow: Follow) -> None:
        await self._all_serve()
        await follow(self._bring)

    async def _all_serve(self) -> None:
        for serving in self._serving.values():
            await serving.wait()

    async def _bring(self, wanted: Sequence[Ordered]) -> None:
        """Have all workers serve what is wanted. One tries it first, then the others do: where one refuses, all serve
        what they did before. Raises `RefusedSettings`, `PortTaken` and `ValueError`."""
        (member,) = wanted
        if (count := member.settings.processes) != len(self._serving):
            raise RefusedSettings(f"{member.name}: workers: {len(self._serving)} in this process, got {count}")
        self._claims.add(member.name, member.settings)
        before = self._given, self._settings
        self._given, self._settings = member.given, member.settings
        first, *others = [number for number, serving in self._serving.items() if serving.is_set()] or [1]
        errors = [await self._order(first)]
        if not errors[0]:  # one of the others that has ended is started again
            errors += await asyncio.gather(*(self._order(number, ended="") for number in others))
        if error := next(filter(None, errors), ""):
            self._given, self._settings = before
            changed = [number for number, refused in zip((first, *others), errors, strict=False) if not refused]
            for left in filter(None, await asyncio.gather(*(self._order(number, ended="") for number in changed))):
                _log.error("%s", left)
            self._claims.keep(list(places(self._settings)))
            raise ValueError(error)
        await self._all_serve()
        self._claims.keep(list(places(member.settings)))

    async def _order(self, number: int, ended: str = "it has ended") -> str:
        """The error with which a worker answers the order, or that it has `ended`; empty once it serves."""
        ports = self._claims.ports(self._settings)
        try:
            error = await self._orders[number].give([self._given], worker=(number, ports))
        except OSError:
            error = ended
        return error and f"worker {number}: {error}"

    async def _keep(self, number: int) -> int:
        """Run a worker, again and again, until all are to stop. 0 when the last one ended well."""
        pauses, first = Pauses(), True
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                code = await self._run_once(number)
            except OSError as error:  # this machine has no process more, or no memory: later it may
                _log.error("worker %d cannot be started: %s", number, error)
                code = 1
            if self._stop.is_set():
                return 0 if code in _TOLD_TO_END else 1
            if code == _BAD_SETTINGS and first and not self._serving[number].is_set():
                self._stop.set()  # the others have the same settings, and a new start would fail again
                return code
            pause_s = pauses.after(time.monotonic() - began)
            _log.warning("worker %d ended with exit code %d, again in %g s", number, code, pause_s)
            self._serving[number].clear()
            first = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
        return 0

    async def _run_once(self, number: int) -> int:
        """The exit code of one process, which stops with all others."""
        self._orders[number] = orders = Orders()
        with orders.far_end() as given:
            process = await asyncio.create_subprocess_exec(
                *_COMMAND,
                stdin=given,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops all in order
            )
        _log.info("worker %d is process %d", number, process.pid)
        serving = asyncio.create_task(self._serve(number))
        ended, stop = asyncio.create_task(process.wait()), asyncio.create_task(self._stop.wait())
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        serving.cancel()
        if not ended.done():
            with suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait({ended}, timeout=self._settings.grace_ms / 1000 + SLACK_S)
        if not ended.done():
            _log.error("worker %d did not stop in time: killed", number)
            with suppress(ProcessLookupError):
                process.kill()
        return await ended

    async def _serve(self, number: int) -> None:
        """Give a process its first order, and what has been ordered meanwhile."""
        given: Mapping[str, Any] | None = None
        while given is not self._given:
            given = self._given
            if error := await self._order(number):
                _log.error("%s", error)
                return
        self._serving[number].set()
