"""One process for several of our own services, where one is enough: `python -m services`.

Its standard input is a socket, on which it gets its orders and answers each once it serves it
(`services/runtime/process/orders.py`). A change of the mesh file changes the process, service by service.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from launcher.processes import ServiceFailed, ServiceProcess, ServiceSpec

# Settings of a process and not of a service: a change of one of them starts the process again.
_OF_THE_PROCESS = ("OTLP_ENDPOINT", "TRACE_RATIO", "TRUST_TRACEPARENT", "LOG_LEVEL")
_CHUNK_BYTES = 4096


def together(name: str, members: Sequence[ServiceSpec]) -> ServiceSpec:
    """A process for `members`, the front last; each has the environment that it would have alone."""
    return ServiceSpec(name, "services", members[-1].address, members=tuple(members))


class SharedProcess(ServiceProcess):
    """A running process of several services."""

    def __init__(self, spec: ServiceSpec, log_dir: Path):
        self._number = 0
        super().__init__(spec, log_dir)

    def _start(self, output: IO[bytes], given: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        self._socket, its = socket.socketpair()
        weakref.finalize(self, self._socket.close)
        self._socket.setblocking(False)
        with its:
            return super()._start(output, its.fileno())

    async def wait_serving(self, timeout_s: float = 120.0) -> None:
        await self._order(self.spec, timeout_s)

    def can_change(self, spec: ServiceSpec) -> bool:
        """Whether it can serve what `spec` says without being started again."""
        return self.exit_code is None and _of_the_process(spec) == _of_the_process(self.spec)

    async def change(self, spec: ServiceSpec, timeout_s: float) -> None:
        """Return when it serves what `spec` says; raise `ServiceFailed` when it does not."""
        self.spec = spec
        await self._order(spec, timeout_s)

    async def _order(self, spec: ServiceSpec, timeout_s: float) -> None:
        self._number += 1
        order = {"number": self._number, "members": [_member(each) for each in spec.members]}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._answered(json.dumps(order).encode() + b"\n")
        except TimeoutError:
            raise ServiceFailed(f"{spec.name} was not serving after {timeout_s:.0f} s:\n{self.tail()}") from None
        except OSError:  # it has closed its end
            answer = b""
        if not answer:
            code = await self.wait()
            raise ServiceFailed(f"{spec.name} ended with exit code {code}:\n{self.tail()}")
        if error := json.loads(answer)["error"]:
            raise ServiceFailed(f"{spec.name}: {error}")

    async def _answered(self, order: bytes) -> bytes:
        """The line that answers it; empty where the process has ended."""
        loop, line = asyncio.get_running_loop(), b""
        await loop.sock_sendall(self._socket, order)
        while not line.endswith(b"\n"):
            more = await loop.sock_recv(self._socket, _CHUNK_BYTES)
            if not more:
                return b""
            line += more
        return line


def _member(spec: ServiceSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "service": spec.module.removeprefix("services."),
        "environment": dict(spec.environment),
    }


def _of_the_process(spec: ServiceSpec) -> list[tuple[str, str]]:
    told = spec.members[-1].environment.items()
    return sorted((name, value) for name, value in told if name.endswith(_OF_THE_PROCESS))
