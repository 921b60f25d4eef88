"""A running `hedgerow up`, as its users run it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil

# A busy machine is no cache that knows no answer, and no classifier that sees nothing.
PATIENT_STAGES = {"HEDGEROW_GATEWAY_STAGE_CAPS_MS": '{"cache": 10000, "router": 1000, "vision": 20000}'}


@dataclass
class Up:
    """`lines` holds what it has printed so far."""

    process: subprocess.Popen[str]
    target: str
    state_dir: Path
    lines: list[str]
    _more: threading.Condition
    ended: bool = False

    def read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._more:
                self.lines.append(line.rstrip())
                self._more.notify_all()
        with self._more:
            self.ended = True
            self._more.notify_all()

    def wait_for(self, line: str, count: int = 1, since: int = 0) -> None:
        """Return when `line` was printed so many times, the first `since` lines left out."""
        with self._more:
            self._more.wait_for(lambda: self.ended or self.lines[since:].count(line) >= count, 600)
            assert self.lines[since:].count(line) >= count, self.lines

    def pid(self, name: str) -> int:
        return int(self._service(name)["pid"])

    def address(self, name: str) -> str:
        """Where a service serves, host:port."""
        return str(self._service(name)["address"])

    def _service(self, name: str) -> dict[str, Any]:
        services = json.loads((self.state_dir / "running.json").read_text())["services"]
        return next(service for service in services if service["name"] == name)

    @property
    def stopped(self) -> list[str]:
        """The services that were stopped, in order."""
        return [line.removesuffix(" stopped") for line in self.lines if line.endswith(" stopped")]


@contextmanager
def running_up(
    state_dir: Path,
    port: int,
    *options: str,
    file: Path | None = None,
    program: str = "tests.models",
    says_where: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Up]:
    """Started, and stopped with SIGTERM: it must end well then, and leave nothing behind. A mesh `file` must have its
    gateway at `port`. `program` is the module that is run: by default the command line with the fixtures' models.
    Without `says_where` the mesh chooses its own state folder, which must be `state_dir`. `environment` is added to
    that of the tests."""
    what = [str(file)] if file else ["--demo", "--base-port", str(port)]
    command = [sys.executable, "-m", program, "up", *what, *(["--state-dir", str(state_dir)] if says_where else [])]
    with running([*command, *options], state_dir, port, env={**os.environ, **(environment or {})}) as up:
        yield up


@contextmanager
def running(command: Sequence[str], state_dir: Path, port: int, **how: Any) -> Iterator[Up]:
    """The same of any command line; `how` it is started, as `Popen` has it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how) as process:
        running = Up(process, f"127.0.0.1:{port}", state_dir, [], threading.Condition())
        assert process.stdout is not None
        reader = threading.Thread(target=running.read, args=[process.stdout])
        reader.start()
        try:
            running.wait_for("Ctrl-C stops everything.")
            yield running
            family = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            reader.join()
    assert process.returncode == 0
    assert [child for child in family if runs(child)] == []
    assert not (state_dir / "running.json").exists()


def ports_in_a_row(count: int) -> int:
    """The first of so many TCP ports on loopback that were free a moment ago; the kernel gives none of them away."""
    for first in random.sample(range(20_000, 32_000, 50), 50):
        try:
            with ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError(f"no {count} free ports in a row")


def runs(process: psutil.Process) -> bool:
    """False also for a zombie, which only waits for its new parent to notice."""
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
