"""Child processes of a pull. They always end with it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence

from launcher.parent_death_signal import killed_with_parent

_TICK_S = 0.2
_LONGEST = 2_000


def run(
    command: Sequence[str],
    tick: Callable[[], None] = lambda: None,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> tuple[int, str]:
    """(exit code, the end of what it said). `tick` is called while it runs. After `timeout_s` it is killed: (-9, …).

    In a session of its own, so that Ctrl-C reaches this process alone, which then kills the child.
    """
    ticks = int(timeout_s / _TICK_S) if timeout_s else -1
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            killed_with_parent(command),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        try:
            code = _finished(process, tick, ticks)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        return code, said.read().decode(errors="replace")[-_LONGEST:].strip()


def _finished(process: subprocess.Popen[bytes], tick: Callable[[], None], ticks: int) -> int:
    while ticks:
        try:
            return process.wait(_TICK_S)
        except subprocess.TimeoutExpired:
            tick()
            ticks -= 1
    return -9
