"""Threads that give way to all others, for what nobody waits for."""

from __future__ import annotations

import os
import sys
import threading

_NICE = 15  # of 19: a little is left for it where all cores are busy


def give_way() -> None:
    """Have the calling thread, and the threads that it starts, run when others leave time. On Linux priorities are the
    threads'; elsewhere they are the process's, and stay as they are."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
