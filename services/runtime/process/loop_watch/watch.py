"""A thread that notices when an event loop is blocked, and looks where.

The thread looks at the loop's thread once in each threshold, and twice while the loop is busy. If the loop's thread has
not run since the last look, and waited for events then, nothing more is done: an idle loop is never woken. Otherwise a
probe asks the loop to call back, and until it does, each look samples the function that the loop is in. The loop was
blocked for the time of the probe; from twice the threshold on, every block is noticed.

C code that holds the interpreter's lock delays this thread as well. The thread then looks at the first moment at which
Python switches threads, mostly in the function that called the C code, and counts the delay, as far as the loop's
thread has used CPU time since the last look. Other threads and other processes delay it as well, while the loop takes
short turns. So a loop that uses 5% of a core keeps a timer, and no delay counts from before the timer last fired.

Several short callbacks in one turn of the loop delay others as one long callback does, and are reported alike: the
function is the one that most samples saw.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from services.runtime.deadline import Clock
from services.runtime.process.loop_watch.place import IN_C, CodePlace, place
from services.runtime.process.loop_watch.report import Block, BlockReporter

_SHORTEST_PAUSE_S = 0.005  # between looks, however low the threshold
_TIMER_S = 1.0  # for which a loop that was busy keeps a timer
_BUSY = 0.05  # of a core, from which on a loop is busy; the timer itself uses less
_REPORT_EARLY_S = 5.0  # a longer block is reported before it ends


@dataclass(slots=True)
class _Probe:
    """A request to the loop to call back, and the places of its thread until it did."""

    began: float
    cpu_s: float  # that the loop's thread had used by then
    samples: Counter[tuple[CodePlace, str]] = field(default_factory=Counter)  # places, and the task that ran there
    ended: float | None = None
    ended_cpu_s: float = 0.0
    reported: bool = False


class LoopWatch:
    """Looks at one loop. `cpu`: seconds of CPU time that the loop's thread has used; `seen`: where it is, None while it
    waits for events; `task`: the name of its current task; `ask`: have the loop call a function soon; `later`: after so
    many seconds."""

    def __init__(
        self,
        threshold_s: float,
        report: Callable[[Block], None],
        *,
        cpu: Clock,
        seen: Callable[[], CodePlace | None],
        task: Callable[[], str],
        ask: Callable[[Callable[[], None]], Any],
        later: Callable[[float, Callable[[], None]], Any],
        clock: Clock = time.monotonic,
    ):
        self._threshold_s, self._report, self._clock, self._cpu = threshold_s, report, clock, cpu
        self._seen, self._task, self._ask, self._later = seen, task, ask, later
        self._timer_fired_at = self._timer_until = -math.inf  # when the loop's timer last fired; until when it is kept
        self._has_timer = False
        self._waited = False  # whether the loop waited for events at the last look
        self._probe: _Probe | None = None
        self._due, self._cpu_s = clock() + self.pause_s, cpu()

    @property
    def pause_s(self) -> float:
        """Seconds until the next look."""
        return max(self._threshold_s / (1 if self._waited else 2), _SHORTEST_PAUSE_S)

    def look(self) -> None:
        """Look once; to be called again after `pause_s`."""
        now, cpu_s = self._clock(), self._cpu()
        used_s = cpu_s - self._cpu_s
        self._check(now, cpu_s, max(now - self._due, 0.0), used_s)
        if used_s > _BUSY * self.pause_s:
            self._keep_a_timer(now)
        self._due, self._cpu_s = now + self.pause_s, cpu_s

    def _check(self, now: float, cpu_s: float, late_s: float, used_s: float) -> None:
        """`late_s`: how late this thread is, `used_s`: CPU time of the loop's thread since the last look."""
        probe = self._probe
        if probe and probe.ended is None:
            self._sample(probe, self._seen() or IN_C)
            self._report_long(probe, now, cpu_s)
            return
        if probe:
            self._end_probe(probe)
        if used_s > 0 or not self._waited:
            self._start_probe(now, cpu_s, late_s, used_s)

    def _start_probe(self, now: float, cpu_s: float, late_s: float, used_s: float) -> None:
        """Ask the loop to call back, unless it waits for events."""
        at = self._seen()
        if at is None and used_s > self.pause_s / 2:
            at = IN_C
        self._waited = at is None
        if at is None:
            return
        # For which the loop's thread kept this thread from running.
        unnoticed_s = max(0.0, min(late_s, used_s, now - self._timer_fired_at))
        probe = self._probe = _Probe(now - unnoticed_s, cpu_s - unnoticed_s)
        self._sample(probe, at)
        self._ask(lambda: self._answered(probe))

    def _answered(self, probe: _Probe) -> None:
        """Called by the loop."""
        probe.ended_cpu_s = self._cpu()
        probe.ended = self._clock()

    def _keep_a_timer(self, now: float) -> None:
        self._timer_until = now + _TIMER_S
        if not self._has_timer:
            self._has_timer = True
            self._ask(self._timer_fired)

    def _timer_fired(self) -> None:
        """Called by the loop's timer."""
        self._timer_fired_at = self._clock()
        self._has_timer = self._timer_fired_at < self._timer_until
        if self._has_timer:
            self._later(self._threshold_s / 4, self._timer_fired)

    def _sample(self, probe: _Probe, at: CodePlace) -> None:
        probe.samples[at, self._task()] += 1

    def _report_long(self, probe: _Probe, now: float, cpu_s: float) -> None:
        if not probe.reported and now - probe.began > _REPORT_EARLY_S:
            probe.reported = True
            self._report(_block(probe, now, cpu_s, ended=False))

    def _end_probe(self, probe: _Probe) -> None:
        self._probe = None
        if probe.ended is not None and probe.ended - probe.began > self._threshold_s:
            self._report(_block(probe, probe.ended, probe.ended_cpu_s))


def _block(probe: _Probe, now: float, cpu_s: float, ended: bool = True) -> Block:
    functions: Counter[str] = Counter()
    for (at, _), times in probe.samples.items():
        functions[at.function] += times
    function, seen = functions.most_common(1)[0]
    at, task = next(each for each, _ in probe.samples.most_common() if each[0].function == function)
    return Block(at, task, now - probe.began, cpu_s - probe.cpu_s, functions.total(), seen, ended)


@contextmanager
def watching(threshold_ms: int, report: Callable[[Block], None] | None = None) -> Iterator[None]:
    """Watch the running loop while the context is open. 0: do not."""
    if not threshold_ms:
        yield
        return
    loop, thread_id = asyncio.get_running_loop(), threading.get_ident()
    cpu_clock = time.pthread_getcpuclockid(thread_id)
    watch = LoopWatch(
        threshold_ms / 1000,
        report or BlockReporter(),
        cpu=lambda: time.clock_gettime(cpu_clock),
        seen=lambda: place(sys._current_frames().get(thread_id)),
        task=lambda: _task(loop),
        ask=loop.call_soon_threadsafe,
        later=loop.call_later,
    )
    stopped = threading.Lock()
    stopped.acquire()

    def run() -> None:
        while not stopped.acquire(timeout=watch.pause_s):
            watch.look()

    thread = threading.Thread(target=run, name="loop-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.release()
        thread.join()


def _task(loop: asyncio.AbstractEventLoop) -> str:
    """The name of the coroutine that a loop's current task runs."""
    task = asyncio.current_task(loop)
    return getattr(task.get_coro(), "__qualname__", "") if task else ""
