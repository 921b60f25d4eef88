"""Starting, watching and stopping the service processes of a mesh on this machine."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hedgerow import Tls
from hedgerow.channel import open_channel
from hedgerow.orders import Orders
from hedgerow.private import UMASK, open_private, private_folder
from launcher.grace import SLACK_S, grace_of
from launcher.parent_death_signal import killed_with_parent

Protocol = Literal["grpc", "redis"]
LOG_BYTES = 64 * 2**20  # of a log; what it said before is kept beside it once
# Settings of a process and not of a service: one of services follows them, and none of its services starts again.
_OF_THE_PROCESS = ("OTLP_ENDPOINT", "TRACE_RATIO", "TRUST_TRACEPARENT", "LOG_LEVEL")
_WARNING_LINES = 1_000  # of a log, in which warnings of the start are looked for
_TAIL_BYTES = 64 * 2**10  # of a log, whose last lines are in them


@dataclass(frozen=True)
class ServiceSpec:
    """A process: `python -m module` with its settings in `environment`, or the foreign `command`."""

    name: str  # unique in the mesh, for example `llm-fast`
    module: str  # for example `services.llm`; empty where there is a `command`
    address: str  # host:port
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()  # for example `redis-server --port …`
    speaks: Protocol = "grpc"  # how it is asked whether it serves
    tls: Tls | None = None  # of the health check, where it asks callers for a certificate
    folder: Path | None = None  # where it runs; None: here
    before_stop: Callable[[], Awaitable[object]] | None = None  # awaited before SIGTERM
    members: tuple[ServiceSpec, ...] = ()  # the services that share it, the front last; empty: it is one itself

    @classmethod
    def together(cls, name: str, members: Sequence[ServiceSpec]) -> Self:
        """One process for the services `members`, the gateway last, each with its own environment."""
        return cls(name, "services.runtime.process", members[-1].address, members=tuple(members))

    @property
    def services(self) -> tuple[ServiceSpec, ...]:
        """The services of the process, each at its own address."""
        return self.members or (self,)

    @property
    def of_the_service(self) -> ServiceSpec:
        """The spec without the settings of its process."""
        own = {name: value for name, value in self.environment.items() if not name.endswith(_OF_THE_PROCESS)}
        return replace(self, environment=own)

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    @property
    def stops_within_s(self) -> float:
        """The time that it may take to stop. Of services that share a process the front stops before the others."""
        *others, front = (grace_of(each.module.removeprefix("services."), each.environment) for each in self.services)
        return front + max(others, default=0.0) + SLACK_S

    @property
    def busy(self) -> ServiceSpec | None:
        """A service whose port is in use by another process."""
        return next((each for each in self.services if not is_free(each.address)), None)


class ServiceFailed(Exception):
    """A service process ended or did not become healthy. The message holds the end of its log."""


class ServiceProcess:
    """A running process, whose output goes to `<log_dir>/<name>.log`, and its earlier output to `<name>.log.1`. One of
    several services gets `Orders` with its services, and answers once they serve.

    It gets a process group of its own: Ctrl-C in the terminal reaches the caller alone, which then stops it in order.
    Should the caller be killed instead, the kernel kills it too. It gets no session of its own: where Linux shares
    cores by sessions (sched(7), autogroup), its background threads would give way to no other service.
    """

    _orders: Orders | None = None
    _code: int | None = None  # with which it has ended
    _check_every_s = 0.1  # until it serves

    def __init__(self, spec: ServiceSpec, log_dir: Path):
        self.spec = spec
        self.log, self.earlier = (log_dir / f"{spec.name}.log{end}" for end in ("", ".1"))
        private_folder(log_dir)
        with open(self.log, "ab", opener=open_private) as output:  # what it said before a restart stays
            self._process = self._start(output)

    def _start(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        self._orders = Orders() if self.spec.members else None
        with self._orders.far_end() if self._orders else nullcontext(subprocess.DEVNULL) as given:
            return subprocess.Popen(
                killed_with_parent(self.spec.command or [sys.executable, "-m", self.spec.module]),
                cwd=self.spec.folder,
                env={**os.environ, **self.spec.environment},
                stdin=given,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                umask=UMASK,  # also of Redis and Envoy
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the process runs. Its children are killed when its end is first seen: later their
        group's number may be that of another group."""
        if self._code is None and (code := self._process.poll()) is not None:
            self._code = code
            self._end_group()
        return self._code

    async def wait(self, poll_s: float = 0.05) -> int:
        """Wait for the end of the process and its children, and return its exit code."""
        while (code := self.exit_code) is None:  # a process sets no event
            with suppress(OSError):  # a log that was deleted, a full disk
                await self._bound_log()
            await asyncio.sleep(poll_s)
        return code

    async def _bound_log(self) -> None:
        if self.log.stat().st_size > LOG_BYTES:
            try:
                await asyncio.to_thread(self._keep_log)
            finally:  # also on a full disk, where it cannot be kept
                os.truncate(self.log, 0)  # the process goes on at its new end: it appends

    def _keep_log(self) -> None:
        with open(self.log, "rb") as said, open(self.earlier, "wb", opener=open_private) as kept:
            shutil.copyfileobj(said, kept)

    async def wait_serving(self, timeout_s: float = 120.0) -> None:
        """Return when health says SERVING, or when several services have answered that they serve; raise
        `ServiceFailed` when the process ends or the time is over."""
        if self._orders:
            await self._give(self._orders, self.spec, timeout_s)
            return
        deadline = time.monotonic() + timeout_s
        while True:
            health = await check(self.spec.speaks, self.spec.address, 0.5, self.spec.tls)
            if self.exit_code is not None:  # then it is another process that serves on its port
                raise ServiceFailed(f"{self.spec.name} ended with exit code {self.exit_code}:\n{self.tail()}")
            if health == "SERVING":
                return
            if time.monotonic() > deadline:
                raise ServiceFailed(f"{self.spec.name} was not serving after {timeout_s:.0f} s:\n{self.tail()}")
            await asyncio.sleep(self._check_every_s)

    def can_change(self, spec: ServiceSpec) -> bool:
        """Whether the process can serve `spec` without a restart."""
        return bool(self._orders and spec.members and self.exit_code is None)

    async def change(self, spec: ServiceSpec, timeout_s: float) -> None:
        """Change to `spec`, which `can_change` allows, and return once it serves. Raises `ServiceFailed`."""
        assert self._orders
        self.spec = spec
        await self._give(self._orders, spec, timeout_s)

    async def _give(self, orders: Orders, spec: ServiceSpec, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                error = await orders.give([_member(each) for each in spec.members])
        except TimeoutError:
            raise ServiceFailed(f"{spec.name} was not serving after {timeout_s:.0f} s:\n{self.tail()}") from None
        except OSError:  # the process has closed its end
            code = await self.wait()
            raise ServiceFailed(f"{spec.name} ended with exit code {code}:\n{self.tail()}") from None
        if error:
            raise ServiceFailed(f"{spec.name}: {error}")

    def tail(self, lines: int = 12) -> str:
        """The last lines of the log, or the reason why there are none."""
        try:
            with open(self.log, "rb") as log:
                log.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                return "\n".join(log.read(_TAIL_BYTES).decode(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"{self.log} cannot be read: {error.strerror}"

    def warnings(self, logger: str) -> list[str]:
        """The messages of the warnings at the end of its log that `logger` or one below it has written."""
        lines = [line.split(" ", 6) for line in self.tail(_WARNING_LINES).splitlines()]  # as `setup_logging` has them
        return [line[6] for line in lines if len(line) == 7 and line[2] == "WARNING" and line[4].startswith(logger)]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.exit_code is None:
            self._process.send_signal(number)

    async def stop(self, timeout_s: float | None = None) -> int:
        """SIGTERM, then SIGKILL to its whole group, by default once it has had its time. Returns the exit code."""
        try:
            if self.spec.before_stop and self.exit_code is None:
                with suppress(Exception):  # it is stopped all the same, and so are those after it
                    await self.spec.before_stop()
        finally:
            self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.wait(), self.spec.stops_within_s if timeout_s is None else timeout_s)
        except TimeoutError:
            self._end_group()
            return await self.wait()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _member(spec: ServiceSpec) -> dict[str, object]:
    return {"name": spec.name, "service": spec.module.removeprefix("services."), "environment": dict(spec.environment)}


async def check(protocol: Protocol, address: str, timeout_s: float, tls: Tls | None = None) -> str:
    """The health of a process, in its protocol."""
    if protocol == "redis":
        return await check_redis(address, timeout_s)
    return await check_health(address, timeout_s, tls)


async def check_redis(address: str, timeout_s: float) -> str:
    """SERVING if Redis answers PING or requires a password, NOT_SERVING for another answer (it loads its data), or
    UNREACHABLE."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, int(port))
            with closing(writer):
                writer.write(b"PING\r\n")
                answer = await reader.readline()
    except (OSError, TimeoutError):
        return "UNREACHABLE"
    return "SERVING" if answer == b"+PONG\r\n" or answer.startswith(b"-NOAUTH ") else "NOT_SERVING"


async def check_health(address: str, timeout_s: float, tls: Tls | None = None) -> str:
    """The status of `grpc.health.v1`: SERVING, NOT_SERVING, …; PERMISSION_DENIED if this caller is refused; or
    UNREACHABLE."""
    async with open_channel(address, tls=tls) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return "PERMISSION_DENIED" if error.code() is grpc.StatusCode.PERMISSION_DENIED else "UNREACHABLE"
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


def is_free(address: str) -> bool:
    """Whether a process can listen at host:port."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """TCP ports on loopback, all different, that were free a moment ago: below those that systems give to connections,
    which would soon have taken one of them."""
    with ExitStack() as stack:
        return [_bind(stack.enter_context(socket.socket())) for _ in range(count)]


def _bind(probe: socket.socket) -> int:
    while True:
        with suppress(OSError):  # another process has it
            probe.bind(("127.0.0.1", port := random.randrange(10_000, 32_768)))
            return port


def free_port() -> int:
    """A free TCP port."""
    return free_ports(1)[0]
