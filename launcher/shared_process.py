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
        self._number, self._unread = 0, b""
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
                error = await self._error_of(json.dumps(order).encode() + b"\n")
        except TimeoutError:
            raise ServiceFailed(f"{spec.name} was not serving after {timeout_s:.0f} s:\n{self.tail()}") from None
        except OSError:  # the process has closed its end
            code = await self.wait()
            raise ServiceFailed(f"{spec.name} ended with exit code {code}:\n{self.tail()}") from None
        if error:
            raise ServiceFailed(f"{spec.name}: {error}")

    async def _error_of(self, order: bytes) -> str:
        """The error with which the process answers its latest order; empty: it serves that. Raises OSError."""
        await asyncio.get_running_loop().sock_sendall(self._socket, order)
        while True:
            answer = json.loads(await self._line())
            if answer["number"] == self._number:  # and no order before, for which nothing waits any more
                return str(answer["error"])

    async def _line(self) -> bytes:
        while b"\n" not in self._unread:
            more = await asyncio.get_running_loop().sock_recv(self._socket, _CHUNK_BYTES)
            if not more:
                raise ConnectionResetError
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
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
