"""Threads that give way to all others, for background work."""

from __future__ import annotations

import os
import sys
import threading


def lower_priority(nice: int) -> None:
    """Have the calling thread, and the threads that it starts, run when others leave time. Where all cores are busy it
    gets a third of another's time with a `nice` of 5, and a thirtieth with 15. On Linux priorities are the threads';
    elsewhere they are the process's, and stay as they are."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
