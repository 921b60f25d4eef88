"""The start and the end of a process of one or several services."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import grpc
import uvloop

from hedgerow.private import UMASK
from services.runtime import telemetry
from services.runtime.process.config import ServiceSettings

STOPS = (signal.SIGTERM, signal.SIGINT)
_OPEN_FILES = 65_536  # a connection is one; the usual soft limits are 256 and 1,024
_TURN_S = 0.0005
_log = logging.getLogger(__name__)


@asynccontextmanager
async def lifetime(name: str, settings: ServiceSettings, served: Callable[[], bool]) -> AsyncIterator[asyncio.Event]:
    """Export traces as `name` inside; yields an event that SIGTERM and SIGINT set.

    Before the process has `served`, there is nothing to drain: a signal cancels the task inside, and the cancellation
    ends here.
    """
    stop, task = asyncio.Event(), asyncio.current_task()

    def on_signal() -> None:
        if not (served() or stop.is_set()) and task:
            task.cancel()  # only once: a second signal does not interrupt the clean-up
        stop.set()

    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    export_traces(name, settings)
    try:
        yield stop
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
    finally:
        await asyncio.to_thread(telemetry.shutdown)
        _log.info("stopped")


def export_traces(name: str, settings: ServiceSettings) -> None:
    """Export traces as `settings` say from now on. May block."""
    sampler = telemetry.sampler(settings.trace_ratio, trusting=settings.trust_traceparent)
    telemetry.setup(name, settings.otlp_endpoint.get_secret_value(), sampler)


def to_the_end(serving: Coroutine[None, None, bool]) -> None:
    """Run what serves, which returns whether it came to serve, as this process.

    Its threads take turns every 0.5 ms. While one of them works in Python, the event loop waits for its turn after each
    call of the operating system: with Python's 5 ms a small call of ten such steps took 50 ms.
    """
    sys.setswitchinterval(_TURN_S)
    # Held to the end: gRPC's engine ends with the last of its objects, and waits for ever where a call is stuck in it
    # (https://github.com/grpc/grpc/issues/22365).
    grpc.aio.init_grpc_aio()
    try:
        uvloop.run(_to_the_end(serving))
    finally:
        for number in STOPS:
            signal.signal(number, signal.SIG_IGN)  # a second signal would turn a good end into a failure


async def _to_the_end(serving: Coroutine[None, None, bool]) -> None:
    """`serving`, and the end of the process where it never served: what loads does so in a thread, which may take
    minutes more, and Python would wait for it."""
    if not await serving:
        atexit._run_exitfuncs()
        os._exit(0)


def keep_to_oneself() -> None:
    """From now on, make files private to their owner, and write no core dumps, because memory contains prompts. The
    hard limit of core dumps stays: `prlimit --core=unlimited --pid …` turns them on for one process."""
    os.umask(UMASK)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def allow_many_connections() -> None:
    """Raise the soft limit of open files, as far as the hard one allows."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if most == resource.RLIM_INFINITY else min(_OPEN_FILES, most)
    if resource.RLIM_INFINITY != now < wanted:
        with suppress(ValueError, OSError):  # a system may have a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
