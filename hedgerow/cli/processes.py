"""Starting, watching and stopping the service processes of a mesh on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc


@dataclass(frozen=True)
class ServiceSpec:
    """One service process: `python -m module`, told its settings by `environment`."""

    name: str  # unique in the mesh, for example `llm-fast`
    module: str  # for example `services.llm`
    address: str  # host:port
    environment: Mapping[str, str] = field(default_factory=dict)


class ServiceFailed(Exception):
    """A service process ended or did not become healthy. The message holds the end of its log."""


class ServiceProcess:
    """A running service, whose output goes to `<log_dir>/<name>.log`.

    It gets a session of its own: Ctrl-C in the terminal reaches the caller alone, which then stops it in order.
    """

    def __init__(self, spec: ServiceSpec, log_dir: Path):
        self.spec = spec
        self.log = log_dir / f"{spec.name}.log"
        log_dir.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:  # what it said before a restart stays
            self._process = subprocess.Popen(
                [sys.executable, "-m", spec.module],
                env={**os.environ, **spec.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    async def wait(self, poll_s: float = 0.05) -> int:
        """Return its exit code when it ends, and end what it may have left behind."""
        while self.exit_code is None:  # noqa: ASYNC110  # a process sets no event
            await asyncio.sleep(poll_s)
        self._end_session()
        return self._process.returncode

    async def wait_serving(self, timeout_s: float = 120.0) -> None:
        """Return when health says SERVING; raise `ServiceFailed` when the process ends or the time is over."""
        deadline = time.monotonic() + timeout_s
        while await check_health(self.spec.address, 0.5) != "SERVING":
            if self.exit_code is not None:
                raise ServiceFailed(f"{self.spec.name} ended with exit code {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ServiceFailed(f"{self.spec.name} was not serving after {timeout_s:.0f} s:\n{self.tail()}")
            await asyncio.sleep(0.1)

    def tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.exit_code is None:
            self._process.send_signal(number)

    async def stop(self, timeout_s: float = 15.0) -> int:
        """SIGTERM, then SIGKILL to its whole session after `timeout_s`. Returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return await asyncio.wait_for(self.wait(), timeout_s)
        except TimeoutError:
            self._end_session()
            return await self.wait()

    def _end_session(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


async def check_health(address: str, timeout_s: float) -> str:
    """SERVING, NOT_SERVING, … as `grpc.health.v1` says, or UNREACHABLE."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return "UNREACHABLE"
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


def free_ports(count: int) -> list[int]:
    """TCP ports on loopback, all different, that were free a moment ago."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]
