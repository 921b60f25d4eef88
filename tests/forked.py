"""Services and commands for tests, forked from one process that has imported them.

Until it serves, a forked gateway takes 0.04 s of CPU and a router 0.01 s, where `python -m services.…` takes 0.77 s and
0.38 s, nearly all of it to import; tests start some four hundred services. A forked service reads the same settings,
runs the same `__main__` from its first line, and is a process group, a log and an exit code, as the launcher's. It is
no fresh interpreter, and begins with the memory of all services: tests that are about that start the launcher's, as
`hedgerow up` does.
"""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple, cast
from unittest.mock import patch

from bench.fixed_given import take
from hedgerow.identities import SERVICES
from hedgerow.private import UMASK
from launcher import processes, supervisor
from launcher.parent_death_signal import die_with_parent
from services.runtime.process import fixed
from services.runtime.process.quiet import silence

_SERVICES = tuple(f"services.{name}" for name in SERVICES)
_PLAIN = ("bench.simulated_llm", "tests.fault.faulty_llm", "tests.integration.scripted_service")
_LATER = (  # imported when used
    "hedgerow._client",
    "hedgerow_cli.failures",
    "hedgerow_cli.report",
    "hedgerow_cli.screen",
    "launcher.meshfile.keys",
    "launcher.meshfile.rendering",
    "services.gateway.output_validation.schema",
    "services.gateway.tools.mcp_source",
)
PRELOADED = (*(f"{service}.__main__" for service in _SERVICES), *_PLAIN, *_LATER, "hedgerow_cli.app")
# Its imports start no thread but OpenBLAS's, which survive a fork; gRPC starts its own when it is first used.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.preloaded"])


class Standard(NamedTuple):
    """Where a process reads from, and writes to."""

    input: Path
    output: Path
    error: Path


class Start(NamedTuple):
    """The parameters of a process. `umask`: -1 to inherit it."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    standard: Standard
    umask: int = -1


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int | None
    out: str
    err: str


class ServiceProcess(processes.ServiceProcess):
    """The launcher's, but for how it starts. vLLM starts as the launcher starts it: it reads variables before Python
    does."""

    _check_every_s = 0.02  # it serves a tenth of a second after it was forked

    async def wait(self, poll_s: float = 0.01) -> int:
        return await super().wait(poll_s)

    def _start(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        spec, environment = self.spec, {**os.environ, **self.spec.environment}
        if spec.module not in (*_SERVICES, *_PLAIN) or _loads_vllm(spec.module, environment):
            return super()._start(output)
        standard = Standard(Path(os.devnull), self.log, self.log)
        start = Start(spec.module, (), environment, Path.cwd() / (spec.folder or ""), standard, UMASK)
        return cast("subprocess.Popen[bytes]", _Forked(_fork(start)))


def forking_meshes() -> AbstractContextManager[object]:
    """Inside, a `Mesh` of this process starts its services by a fork."""
    return patch.object(supervisor, "ServiceProcess", ServiceProcess)


def _loads_vllm(module: str, environment: Mapping[str, str]) -> bool:
    return module == "services.llm" and environment.get("HEDGEROW_LLM_ENGINE") not in ("openai", "anthropic")


class _Forked:
    """As much of a Popen as ServiceProcess asks for."""

    def __init__(self, process: ForkServerProcess):
        self._process = process
        self.pid = cast(int, process.pid)

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended, and is about to be said to have
            if self.poll() is None:
                os.kill(self.pid, number)


async def run(module: str, *arguments: str, stdin: str = "", **environment: str) -> Ended:
    """Run `python -m module …` in a forked process, from its start to its end."""
    with _running(module, arguments, stdin, {**os.environ, **environment}) as (child, standard):
        try:
            await asyncio.to_thread(child.join)
        except asyncio.CancelledError:
            child.kill()
            raise
        return _ended(child, standard)


async def refused_start(service: str, **settings: object) -> Ended:
    """How a service ends that must not start with these settings."""
    prefix = f"HEDGEROW_{service.upper()}_"
    given = {"address": f"127.0.0.1:{processes.free_port()}", **settings}
    async with asyncio.timeout(60):
        return await run(
            f"services.{service}", **{f"{prefix}{name.upper()}": str(value) for name, value in given.items()}
        )


def run_blocking(module: str, *arguments: str, environment: Mapping[str, str] = os.environ) -> Ended:
    """The same, blocking. `environment` is all that the process gets."""
    with _running(module, arguments, "", environment) as (child, standard):
        child.join()
        return _ended(child, standard)


@contextmanager
def _running(
    module: str, arguments: Sequence[str], stdin: str, environment: Mapping[str, str]
) -> Iterator[tuple[ForkServerProcess, Standard]]:
    with TemporaryDirectory() as folder:
        standard = Standard(*(Path(folder, name) for name in Standard._fields))
        standard.input.write_text(stdin)
        yield _fork(Start(module, arguments, dict(environment), Path.cwd(), standard)), standard


def _ended(child: ForkServerProcess, standard: Standard) -> Ended:
    return Ended(child.exitcode, standard.output.read_text(), standard.error.read_text())


def _fork(start: Start) -> ForkServerProcess:
    for file in {start.standard.output, start.standard.error}:
        file.touch()
    child = FORKS.Process(target=_become, args=(start,), daemon=True)
    child.start()
    return child


def _become(start: Start) -> None:
    """Become `python -m module …`, in a process group of its own. Ends with the process that it is forked from."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        die_with_parent(os.getppid())
    if start.umask >= 0:
        os.umask(start.umask)
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    silence(os.environ)  # as the first import of `services` does
    for number, path in enumerate(start.standard):
        file = os.open(path, os.O_WRONLY | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0)  # multiprocessing has put another there
    if start.module in (*_SERVICES, *_PLAIN):
        fixed.refuse = take  # tests pass what only code may pass
    sys.argv = [start.module, *start.arguments]
    found = start.module if start.module in _PLAIN else f"{start.module}.__main__"
    sys.modules.pop(found, None)  # it is to run, and not to be found
    try:
        runpy.run_module(start.module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out
