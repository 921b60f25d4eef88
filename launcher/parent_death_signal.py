"""A child process that ends when its parent does, however the parent ends: SIGKILL leaves no orphan behind.

`Popen(killed_with_parent(command))` puts a line of Python before the command, which asks the kernel for that and then
becomes the command, under the same pid (prctl(2), PR_SET_PDEATHSIG; it survives exec). A `preexec_fn` would do the
same, but is not safe in a process with threads, which every process with gRPC is. Outside Linux the command runs as it
is.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def killed_with_parent(command: Sequence[str]) -> list[str]:
    """`command`, to be started by this process; it gets SIGKILL when the thread that starts it ends.

    Costs the child 20 ms. `command[0]` is looked up on PATH.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-IS", __file__, str(os.getpid()), *command]


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send this process SIGKILL when the thread that started it ends; at once if that has happened."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
