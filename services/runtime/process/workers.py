"""Several processes of one service on the same ports: a parent, and workers among which the kernel shares
connections (SO_REUSEPORT). A connection, with all its calls, stays with its worker.

The parent binds the ports before any worker, until it ends: so the kernel may choose a port, and a second service on
the same port is refused. A worker that dies is started again, after a pause that grows while it keeps dying; the others
do not notice. A worker is a process of one service (`together.py`), which gets orders from its parent as the parent
gets them from `hedgerow up`: with new settings each worker exchanges its service as it runs, and with another number of
workers the additional ones start or stop, so no call is refused. Workers end with their parent, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from hedgerow.orders import Orders
from hedgerow.restarts import Pauses
from services.runtime.process.config import ServiceSettings
from services.runtime.process.ports import Claims, PortTaken

Settings = TypeVar("Settings", bound=ServiceSettings)
SLACK_S = 4.0  # beyond the grace, for the shutdown after the last call
_COMMAND = (sys.executable, "-m", "services.runtime.process")
_BAD_SETTINGS = 2  # the exit code of a process that cannot use its settings
_STOPPED_ON_REQUEST = (0, -signal.SIGTERM)  # the latter where it had no handler yet
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process; numbers begin at 1."""

    number: int
    ports: Sequence[int]  # of the settings in `shared_addresses`, in their order

    def own(self, settings: Settings) -> Settings:
        """The worker's settings: the shared ports, and a metrics port: the one after the parent's for the first worker,
        the next for the second, and so on."""
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


def main(given: Mapping[str, Any], settings: ServiceSettings) -> int:
    """Run `settings.processes` workers of a service, as an order would give it, until they must stop; the exit code."""
    claims = Claims()
    try:
        claims.add(given["name"], settings)
    except PortTaken as error:
        _log.error("%s", error)
        return 1
    code: int = uvloop.run(_until_signal(Workers(given, settings, claims)))
    _log.info("stopped")
    return code


async def _until_signal(workers: Workers) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, workers.stop.set)
    return await workers.run()


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"


@dataclass(eq=False)
class _SupervisedWorker:
    """A worker that is started again when its process ends."""

    number: int
    serving: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    orders: Orders | None = None  # to its present process
    task: asyncio.Task[int] | None = None
    error: str = ""  # with which its first process ended before it served
    _settled: asyncio.Event = field(default_factory=asyncio.Event)

    def settle(self, error: str = "") -> None:
        """Record that the worker's first process serves, or has ended with an `error`. Later calls change nothing."""
        if not self._settled.is_set():
            self.error = error and f"worker {self.number}: {error}"
            self._settled.set()

    async def settled(self) -> str:
        """The error with which its first process ended before it served; empty if it has served."""
        await self._settled.wait()
        return self.error


class Workers:
    """Keeps the workers of one service running, which an order has `given`, on ports that `claims` has for its
    `settings`. They end once `stop` is set."""

    def __init__(self, given: Mapping[str, Any], settings: ServiceSettings, claims: Claims):
        self._given, self._settings, self._claims = given, settings, claims
        self.stop = asyncio.Event()
        self._workers = {number: _SupervisedWorker(number) for number in range(1, settings.processes + 1)}
        self._group = asyncio.TaskGroup()

    async def run(self) -> int:
        """Run the workers until `stop` is set. Returns the exit code: 0 if all workers ended well."""
        ports = self._claims.ports(self._settings)
        _log.info("%d workers on port %s", len(self._workers), " and ".join(map(str, ports)))
        async with self._group:
            for each in self._workers.values():
                self._start(each)
            await self.stop.wait()
            for each in self._workers.values():
                each.stop.set()
        return max(each.task.result() for each in self._workers.values() if each.task)

    async def started(self) -> None:
        """Return when all workers serve. Raises ValueError if the first process of a worker has ended before."""
        for each in tuple(self._workers.values()):
            if error := await each.settled():
                raise ValueError(error)

    async def bring(self, given: Mapping[str, Any], settings: ServiceSettings) -> None:
        """Exchange the service: as many workers as `settings` say serve it with `given`. One worker tries it first,
        then the others, then additional ones start, and surplus ones stop. If one refuses, all serve as before. Raises
        ValueError."""
        before = self._given, self._settings
        self._given, self._settings = given, settings
        stay = [each for each in self._workers.values() if each.number <= settings.processes]
        changed, more = list[_SupervisedWorker](), list[_SupervisedWorker]()
        try:
            first, *others = [each for each in stay if each.serving.is_set()] or stay[:1]
            _raise(await self._order(first))
            changed.append(first)
            errors = await asyncio.gather(*(self._order(each, ended="") for each in others))
            changed += [each for each, refused in zip(others, errors, strict=True) if not refused]
            _raise(*errors)  # one of the others that has ended is started again
            more += [_SupervisedWorker(number) for number in range(len(self._workers) + 1, settings.processes + 1)]
            for each in more:
                self._workers[each.number] = each
                self._start(each)
            _raise(*[await each.settled() for each in more])
        except ValueError:
            self._given, self._settings = before
            await self._end(more)
            for left in filter(None, await asyncio.gather(*(self._order(each, ended="") for each in changed))):
                _log.error("%s", left)
            raise
        for each in stay:
            await each.serving.wait()
        await self._end([each for each in self._workers.values() if each.number > settings.processes])

    def _start(self, worker: _SupervisedWorker) -> None:
        worker.task = self._group.create_task(self._keep(worker))

    async def _end(self, several: Sequence[_SupervisedWorker]) -> None:
        """Stop these workers, and return when they have ended."""
        for each in several:
            each.stop.set()
        for each in several:
            if each.task:
                await asyncio.wait({each.task})
            del self._workers[each.number]

    async def _order(self, worker: _SupervisedWorker, ended: str = "it has ended") -> str:
        """Give a worker the present order. Returns its error, or `ended` without a process; empty once it serves."""
        ports = self._claims.ports(self._settings)
        error = ended
        with suppress(OSError):  # it has closed its end
            if worker.orders:
                error = await worker.orders.give([self._given], worker=(worker.number, ports))
        return error and f"worker {worker.number}: {error}"

    async def _keep(self, worker: _SupervisedWorker) -> int:
        """Run a worker's processes, one after the other, until it must stop. Returns 0 if the last one ended well."""
        pauses, first = Pauses(), True
        while not worker.stop.is_set():
            began = time.monotonic()
            try:
                code = await self._run_once(worker)
            except OSError as error:  # no further process or memory on this machine, for now
                _log.error("worker %d cannot be started: %s", worker.number, error)
                code = 1
            worker.settle(f"ended with exit code {code}")
            if worker.stop.is_set():
                return 0 if code in _STOPPED_ON_REQUEST else 1
            if code == _BAD_SETTINGS and first and not self._one_serves():
                self.stop.set()  # the others have the same settings, and a new start would fail again
                return code
            pause_s = pauses.after(time.monotonic() - began)
            _log.warning("worker %d ended with exit code %d, again in %g s", worker.number, code, pause_s)
            worker.serving.clear()
            first = False
            with suppress(TimeoutError):
                await asyncio.wait_for(worker.stop.wait(), pause_s)
        return 0

    def _one_serves(self) -> bool:
        return any(each.serving.is_set() for each in self._workers.values())

    async def _run_once(self, worker: _SupervisedWorker) -> int:
        """Run one process of a worker, until it ends or the worker must stop. Returns its exit code."""
        worker.orders = orders = Orders()
        with orders.far_end() as given:
            process = _process(given)
        _log.info("worker %d is process %d", worker.number, process.pid)
        serving = asyncio.create_task(self._serve(worker))
        ended, stop = asyncio.create_task(_ended(process)), asyncio.create_task(worker.stop.wait())
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        serving.cancel()
        if not ended.done():
            process.terminate()
            await asyncio.wait({ended}, timeout=self._settings.grace_ms / 1000 + SLACK_S)
        if not ended.done():
            _log.error("worker %d did not stop in time: killed", worker.number)
            process.kill()
        return await ended

    async def _serve(self, worker: _SupervisedWorker) -> None:
        """Give a process its first order, and again if the order has changed meanwhile."""
        given: Mapping[str, Any] | None = None
        while given is not self._given:
            given = self._given
            if error := await self._order(worker):
                _log.error("%s", error)
                return
        worker.serving.set()
        worker.settle()


def _process(given: int) -> subprocess.Popen[bytes]:
    """A process whose standard input is `given`. Not asyncio's: uvloop runs the fork handlers of gRPC's engine in the
    child, which ends with SIGSEGV then."""
    return subprocess.Popen(
        _COMMAND,
        stdin=given,
        process_group=0,  # Ctrl-C reaches the parent alone, which then stops all in order
    )


async def _ended(process: subprocess.Popen[bytes], poll_s: float = 0.05) -> int:
    """The exit code of a process, which sets no event, once it has ended."""
    while (code := process.poll()) is None:  # noqa: ASYNC110
        await asyncio.sleep(poll_s)
    return code


def _raise(*errors: str) -> None:
    """Raise ValueError with the first error, if there is one."""
    if error := next(filter(None, errors), ""):
        raise ValueError(error)
