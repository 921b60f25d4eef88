"""Several processes of one service on the same ports: a parent that serves nothing, and workers that the kernel shares
connections out to (SO_REUSEPORT). A connection stays with the worker it came to, and so do all calls on it.

The parent has the ports before any worker, and for as long as it lives: so a port may be chosen by the kernel, and a
second service on the same port is still refused. A worker that dies is started again, after a pause that
grows while it keeps dying; the others do not notice. Workers end with their parent, however it ends: each has the end
of a pipe as its standard input that only the parent's death closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self, TypeVar

import uvloop

from hedgerow.restarts import Pauses
from services.runtime.process.config import ServiceSettings

Settings = TypeVar("Settings", bound=ServiceSettings)
SLACK_S = 4.0  # beyond the grace: for what is taken apart after the last call
_MARK = "_HEDGEROW_WORKER"  # in a worker's environment, `<number> <port> …`; no setting, the parent alone writes it
_BAD_SETTINGS = 2  # the exit code of a process that cannot use its settings
_TOLD_TO_END = (0, -signal.SIGTERM)  # the latter where it had no handler yet
_log = logging.getLogger(__name__)


class PortTaken(Exception):
    """The address cannot be had; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several processes; numbers count from 1."""

    number: int
    ports: tuple[int, ...]  # of the settings in `shared_addresses`, in their order

    @classmethod
    def current(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Which one this process is; None for one without a parent of workers."""
        mark = environment.get(_MARK)
        if not mark:
            return None
        number, *ports = map(int, mark.split())
        return cls(number, tuple(ports))

    @property
    def mark(self) -> Mapping[str, str]:
        """The environment that numbers its process."""
        return {_MARK: " ".join(map(str, (self.number, *self.ports)))}

    def own(self, settings: Settings) -> Settings:
        """Its settings: the ports they share, and metrics on the port after the parent's, the next one, and so on."""
        addresses = zip(settings.shared_addresses, self.ports, strict=True)
        update = {name: _with_port(getattr(settings, name), port) for name, port in addresses}
        if settings.metrics_address:
            shared = int(settings.metrics_address.rpartition(":")[2])
            update["metrics_address"] = _with_port(settings.metrics_address, shared + self.number)
        return settings.model_copy(update=update)

    def end_with_parent(self, grace_s: float) -> None:
        """Stop this process when its parent is gone, and kill it if it has not ended a while after the grace."""

        def watch() -> None:
            os.read(sys.__stdin__.fileno() if sys.__stdin__ else 0, 1)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_s + SLACK_S)
            os._exit(1)

        threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def main(name: str, settings: ServiceSettings, arguments: Sequence[str]) -> int:
    """Run `settings.processes` workers of `services.<name>` until they must stop; the exit code."""
    with ExitStack() as stack:
        try:
            held = [stack.enter_context(claim(getattr(settings, each), each)) for each in settings.shared_addresses]
        except PortTaken as error:
            _log.error("%s", error)
            return 1
        command = [sys.executable, "-m", f"services.{name}", *arguments]
        ports = tuple(each.getsockname()[1] for each in held)
        _log.info("%d workers on port %s", settings.processes, " and ".join(map(str, ports)))
        code: int = uvloop.run(_Parent(command, settings.grace_ms / 1000).run(ports, settings.processes))
    _log.info("stopped")
    return code


def claim(address: str, setting: str = "address") -> socket.socket:
    """A socket that has `address` and does not listen: from now on only workers of this user may have it too.

    Bound before it may be shared, so that this fails where another process, workers of another parent included, has the
    port. Raises `PortTaken`.
    """
    host, _, port = address.rpartition(":")
    try:
        family, kind, *_, place = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        claimed = socket.socket(family, kind)
    except (OSError, ValueError) as error:
        raise PortTaken(f"{setting}: {address} is no host and port to share: {error}") from None
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
        claimed.bind(place)
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # but this one is not, even before it listens
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError as error:
        claimed.close()
        raise PortTaken(f"{setting}: {address} cannot be had: {error.strerror}") from None
    return claimed


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"


class _Parent:
    """Keeps workers running: `command` is what each of them runs."""

    def __init__(self, command: Sequence[str], grace_s: float):
        self._command, self._grace_s = command, grace_s
        self._stop = asyncio.Event()
        self._pipe_out, self._pipe_in = os.pipe()

    async def run(self, ports: tuple[int, ...], count: int) -> int:
        """Until SIGTERM or SIGINT. 0 when all workers ended well."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            async with asyncio.TaskGroup() as group:
                kept = [group.create_task(self._keep(Worker(n, ports))) for n in range(1, count + 1)]
        finally:
            os.close(self._pipe_in)
            os.close(self._pipe_out)
        return max(task.result() for task in kept)

    async def _keep(self, worker: Worker) -> int:
        """Run a worker, again and again, until all are to stop. 0 when the last one ended well."""
        pauses, first = Pauses(), True
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                code = await self._run_once(worker)
            except OSError as error:  # this machine has no process more, or no memory: later it may
                _log.error("worker %d cannot be started: %s", worker.number, error)
                code = 1
            if self._stop.is_set():
                return 0 if code in _TOLD_TO_END else 1
            if code == _BAD_SETTINGS and first:
                self._stop.set()  # the others have the same settings, and a new start would fail again
                return code
            pause_s = pauses.after(time.monotonic() - began)
            _log.warning("worker %d ended with exit code %d, again in %g s", worker.number, code, pause_s)
            first = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
        return 0

    async def _run_once(self, worker: Worker) -> int:
        """The exit code of one process, which stops with all others."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env={**os.environ, **worker.mark},
            stdin=self._pipe_out,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then stops all in order
        )
        _log.info("worker %d is process %d", worker.number, process.pid)
        ended, stop = asyncio.create_task(process.wait()), asyncio.create_task(self._stop.wait())
        await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not ended.done():
            with suppress(ProcessLookupError):
                process.terminate()
            await asyncio.wait({ended}, timeout=self._grace_s + SLACK_S)
        if not ended.done():
            _log.error("worker %d did not stop in time: killed", worker.number)
            with suppress(ProcessLookupError):
                process.kill()
        return await ended
