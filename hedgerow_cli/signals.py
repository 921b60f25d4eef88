"""End a command on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP cancels the current task and ends the block without an error.

    Later ones are ignored: a second Ctrl-C must not leave half of the services behind. So is SIGHUP under `nohup`.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signalled = False

    def on_signal() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    numbers = (signal.SIGINT, signal.SIGTERM, *hangup)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    except asyncio.CancelledError:
        if not signalled:
            raise
        task.uncancel()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
