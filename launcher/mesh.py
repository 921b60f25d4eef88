"""A mesh of service processes on this machine."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from hedgerow.private import open_private, private_folder
from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec
from launcher.supervisor import Change, Report, Supervisor

DEFAULT_BASE_PORT = 50050
DEFAULT_STATE_DIR = Path(".hedgerow")
HTTP_OFFSET = 30  # from the base port: where the gateway serves HTTP
RUNNING_FILE = "running.json"


class MeshError(Exception):
    """The mesh cannot be started."""


class PortInUse(MeshError):
    """Another process has a port that a service needs."""


def collections_at(cache: str) -> dict[str, dict[str, object]]:
    """The source of tools for a cache service's collections: `search_<name>` for each."""
    return {"collections": {"address": cache, "identity": "cache", "call_ms": 1_000}}


def service_spec(name: str, service: str, address: str, settings: Mapping[str, str]) -> ServiceSpec:
    """A service of Hedgerow with a name."""
    kind = service.partition("-")[0]
    variables = {f"HEDGEROW_{kind.upper()}_{key}": value for key, value in {"ADDRESS": address, **settings}.items()}
    return ServiceSpec(name, f"services.{kind}", address, variables)


class Mesh:
    """`async with Mesh(specs, state_dir)`: all services serve inside, and none is left after.

    All start at once, and one that ends later is started again. The last of `specs` is the front: it is stopped first,
    so that calls in flight still find the others. `report` hears of each change. `prepare` is called before any starts,
    once the state folder is this mesh's alone. Raises `MeshError` or `ServiceFailed`.
    """

    def __init__(
        self,
        specs: Sequence[ServiceSpec],
        state_dir: Path,
        report: Report = lambda _: None,
        prepare: Callable[[], None] = lambda: None,
    ):
        self._state_dir, self._report, self._prepare = state_dir, report, prepare
        self._front = specs[-1].name
        self.services = [self._supervisor(spec) for spec in specs]
        self._stack = AsyncExitStack()
        self._keepers: dict[str, asyncio.Task[None]] = {}  # by the service that it keeps running

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._claim(stack)
            self._write_files()
            stack.push_async_callback(self._stop)
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()  # without `exc`: a task group would wrap it

    def _claim(self, stack: AsyncExitStack) -> None:
        """Make sure that the state folder and the ports are ours alone."""
        try:
            private_folder(self._state_dir)
            folder = os.open(self._state_dir, os.O_RDONLY)
            stack.callback(os.close, folder)
            is_ours = _is_ours(folder)
        except OSError as error:  # also of a file system without locks
            problem = f"{self._state_dir} cannot be the state folder: {error.strerror}"
            raise MeshError(f"{problem}; --state-dir names another") from None
        if not is_ours:
            raise MeshError(
                f'another mesh uses {self._state_dir}; "hedgerow down" ends it, and --state-dir names another folder'
            )
        self._remove_running_file()  # of a mesh that was killed: its processes' numbers may be those of others by now
        refuse_busy_ports(*(supervisor.spec for supervisor in self.services))
        stack.callback(self._remove_running_file)
        with suppress(OSError):  # each start of a service writes it again
            self._write_running_file()

    def _write_files(self) -> None:
        """Write the files of the services, and remove the logs of the last mesh."""
        try:
            for supervisor in self.services:
                for end in ("log", "log.1"):
                    (self._state_dir / "logs" / f"{supervisor.spec.name}.{end}").unlink(missing_ok=True)
            self._prepare()
        except OSError as error:
            raise MeshError(f"{error.filename or self._state_dir} cannot be written: {error.strerror}") from None

    async def _start(self, stack: AsyncExitStack) -> None:
        failures: Sequence[BaseException] = ()
        try:
            async with asyncio.TaskGroup() as starting:
                started = [starting.create_task(supervisor.start()) for supervisor in self.services]
        except* ServiceFailed as failed:
            failures = failed.exceptions  # not raised here: Python before 3.11.4 wraps what `except*` raises in a group
        if failures:
            raise failures[0]
        self._keeping = await stack.enter_async_context(asyncio.TaskGroup())
        stack.callback(self._let_go)
        for supervisor, task in zip(self.services, started, strict=True):
            self._keep(supervisor, task.result())

    async def put(self, spec: ServiceSpec, *, insist: bool = False) -> None:
        """Start one more service, or in the place of the one of its name, which is stopped first. Returns when it
        serves. If it does not and we `insist`, it is started again and again, and nothing is raised. Else there is none
        of its name then, and `MeshError` or `ServiceFailed` is raised. A process that services share changes as it
        runs; where it cannot, it may serve a part of `spec` when that is raised."""
        if await self._changed(spec, insist):
            return
        await self.remove(spec.name)
        if not insist:
            refuse_busy_ports(spec)
        supervisor = self._supervisor(spec)
        self.services.insert(len(self.services) - (spec.name != self._front), supervisor)
        process: ServiceProcess | None
        try:
            process = await supervisor.start()
        except ServiceFailed:
            if not insist:
                await self.remove(spec.name)
                raise
            process = supervisor.process  # None where none could be made
            if process:
                await process.stop()
        self._keep(supervisor, process)

    async def _changed(self, spec: ServiceSpec, insist: bool) -> bool:
        """Whether a running process serves `spec` now, or will in the end, where we `insist`."""
        running = next((each for each in self.services if each.spec.name == spec.name), None)
        if running is None or not spec.members:
            return False
        if not insist:
            own = {each.port for each in running.spec.services}
            refuse_busy_ports(*(each for each in spec.members if each.port not in own))
        try:
            changed = await running.change(spec)
        except ServiceFailed:
            if not insist:
                raise
            changed = False
        if changed:
            with suppress(OSError):  # at the next start it is written
                self._write_running_file()
        return changed

    async def remove(self, name: str) -> None:
        """Stop the service of that name, if it exists."""
        if keeper := self._keepers.pop(name, None):
            keeper.cancel()
            await asyncio.wait({keeper})
        for supervisor in [service for service in self.services if service.spec.name == name]:
            await supervisor.stop()
            self.services.remove(supervisor)
            with suppress(OSError):  # the next start writes it again
                self._write_running_file()

    def _keep(self, supervisor: Supervisor, process: ServiceProcess | None) -> None:
        self._keepers[supervisor.spec.name] = self._keeping.create_task(supervisor.keep_running(process))

    def _let_go(self) -> None:
        for keeper in self._keepers.values():
            keeper.cancel()

    def _supervisor(self, spec: ServiceSpec) -> Supervisor:
        return Supervisor(spec, self._state_dir / "logs", self._on_change)

    async def _stop(self) -> None:
        """Stop all services. The mesh ends in any case, so a cancellation meanwhile has no effect: it would leave
        services behind, and hide the error for which the mesh ends."""
        stopping = asyncio.create_task(self._stop_in_order())
        while not stopping.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({stopping})
        stopping.result()

    async def _stop_in_order(self) -> None:
        for front in [service for service in self.services if service.spec.name == self._front]:
            await front.stop()
        await asyncio.gather(*(service.stop() for service in self.services if service.spec.name != self._front))

    def _on_change(self, change: Change) -> None:
        if change.state in ("starting", "serving"):
            try:
                self._write_running_file()
            except OSError as error:  # `hedgerow status` knows less, and the services go on
                change = replace(change, detail=f"{RUNNING_FILE} cannot be written: {error.strerror}")
        self._report(change)

    def _write_running_file(self) -> None:
        services = [
            {
                **_pages_of(spec),
                "name": spec.name,
                "address": spec.address,
                "speaks": spec.speaks,
                "pid": service.process.pid,
            }
            for service in self.services
            if service.process
            for spec in service.spec.services
        ]
        unfinished = self._state_dir / f"{RUNNING_FILE}.new"
        with open(unfinished, "w", encoding="utf-8", opener=open_private) as file:
            file.write(json.dumps({"pid": os.getpid(), "services": services}, indent=2) + "\n")
        unfinished.replace(self._state_dir / RUNNING_FILE)

    def _remove_running_file(self) -> None:
        with suppress(OSError):  # on a disk that cannot be written by now; commands see that no mesh holds the folder
            (self._state_dir / RUNNING_FILE).unlink()


def _pages_of(spec: ServiceSpec) -> dict[str, object]:
    """The HTTP and metrics addresses of a gateway: of several workers each has the next metrics port."""
    http, metrics, workers = (
        spec.environment.get(f"HEDGEROW_GATEWAY_{name}", "") for name in ("HTTP_ADDRESS", "METRICS_ADDRESS", "WORKERS")
    )
    host, _, port = metrics.rpartition(":")
    count = int(workers or 1)
    pages = (
        [f"{host}:{int(port) + number}" for number in (range(1, count + 1) if count > 1 else [0])] if metrics else []
    )
    return {**({"http": http} if http else {}), **({"metrics": pages} if pages else {})}


def _is_ours(folder: int) -> bool:
    """Whether the lock on the open folder is ours, until it is closed. Commands that look for meshes hold it for a
    moment: it is asked for again a few times."""
    for pause_s in (0.02, 0.05, 0.1, 0.0):
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_s)
        else:
            return True
    return False


def refuse_busy_ports(*specs: ServiceSpec) -> None:
    """Raises `PortInUse` for the first service whose port another process has."""
    for busy in filter(None, (spec.busy for spec in specs)):
        raise PortInUse(f"port {busy.port}, which {busy.name} needs, is in use")
