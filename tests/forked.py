"""Service processes for tests, forked from one process that has imported the services.

A start costs 0.1 to 0.2 s of CPU so, where `python -m services.…` takes 0.6 to 0.9 s, nearly all of it to import; tests
start some four hundred. What is forked reads the same settings, runs the same `__main__` from its first line, and is a
session, a log and an exit code, as the launcher's. It is no fresh interpreter, and begins with the memory of all
services: tests that are about that start the launcher's, as `hedgerow up` and all commands do.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO, cast

from hedgerow.identities import SERVICES
from hedgerow.private import UMASK
from launcher import processes
from launcher.parent_death_signal import die_with_parent
from services.runtime.process.quiet import silence
from tests import marks

# numpy's threads are those of OpenBLAS, which survive a fork; gRPC starts its own when it is first used.
MODULES = {f"services.{name}": f"services.{name}.__main__" for name in SERVICES} | {
    name: name for name in ("bench.simulated_llm", "tests.fault.faulty_llm")
}
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.preloaded"])


class ServiceProcess(processes.ServiceProcess):
    """The launcher's, but for how it starts. vLLM starts as ever: it reads variables before Python does."""

    def _start(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        spec, environment = self.spec, {**os.environ, **self.spec.environment}
        if spec.module not in MODULES or marks.is_vllm(spec.module, environment):
            return super()._start(output)
        marks.note(spec.module, environment)
        folder = Path.cwd() / (spec.folder or "")
        child = _forks.Process(target=_become, args=(spec.module, environment, folder, self.log), daemon=True)
        child.start()
        return cast("subprocess.Popen[bytes]", _Forked(child))


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
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(module: str, environment: Mapping[str, str], folder: Path, log: Path) -> None:
    """What `python -m module` would be, in a session of its own. Ends with whom it is forked from."""
    os.setsid()
    die_with_parent(os.getppid())
    os.umask(UMASK)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    silence(os.environ)  # as the first import of `services` does
    for flags, standard in ((os.O_RDONLY, [0]), (os.O_WRONLY | os.O_APPEND, [1, 2])):
        file = os.open(log if 1 in standard else os.devnull, flags)
        for number in standard:
            os.dup2(file, number)
        os.close(file)
    sys.argv = [module]
    del sys.modules[MODULES[module]]  # it is to run, and not to be found
    try:
        runpy.run_module(MODULES[module], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out
