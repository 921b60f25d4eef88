"""A circuit breaker for one backend: a backend that fails, is slow or throttles gets no calls until a probe succeeds.

The breaker opens after some failures in a row, five by default, which is how a dead backend shows: a window full of
earlier successes would hide it for seconds. It also opens by the rates of a window of time (Nygard, Release
It!; resilience4j's circuit breaker has the same terms: https://resilience4j.readme.io/docs/circuitbreaker), because a
backend that fails every other call never fails five in a row. The usual 60 s until the next try are long for a process
that is back after one second: it is tried again soon, with one call, which costs little when it fails.

Slow means a late first text. The time to the last one depends on how long an answer the client asked for; the time to
the first is the backend's own.

A backend that says when to come back (429, RESOURCE_EXHAUSTED with a retry delay) is believed at once. A lost
connection opens the breaker at once, too, and a restored one permits a probe: the owner of the channel reports both.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import ClassVar

from prometheus_client import Counter, Gauge

from services.runtime.deadline import Clock
from services.runtime.digest import CallCounts, CountWindow
from services.runtime.errors import Exhausted, Unavailable
from services.runtime.line_limit import LineLimit

_PROBE_JITTER = 0.2  # of `open_s`, up and down: not all gateways probe at once
_THROTTLE_JITTER = 0.1  # upwards only: the backend said when
_OPEN = Gauge("hedgerow_breaker_open", "State of a backend's breaker: 0 closed, 0.5 half open, 1 open.", ["backend"])
_CHANGES = Counter("hedgerow_breaker_changes", "Changes of a breaker's state.", ["backend", "state"])
_RANDOM = random.Random()
_log = logging.getLogger(__name__)


class State(Enum):
    """State of a breaker. The value is that of the gauge."""

    CLOSED = 0.0
    HALF_OPEN = 0.5
    OPEN = 1.0


class BreakerOpen(Unavailable):
    """The backend is not called, because of how its last calls ended."""

    reason: ClassVar[str] = "BREAKER_OPEN"


class Throttled(Exhausted):
    """The backend asked to be left alone, and is not called before that time."""

    reason: ClassVar[str] = "THROTTLED"


class _Result(Enum):
    GOOD = "good"
    SLOW = "slow"
    SILENT = "silent"  # slow, and nothing has come
    FAILED = "failed"
    NONE = "none"


class Permit:
    """The permit for one call, which reports once how it ended."""

    __slots__ = ("_breaker", "_epoch", "probe")

    def __init__(self, breaker: Breaker, epoch: int, probe: bool):
        self._breaker, self._epoch, self.probe = breaker, epoch, probe

    def succeeded(self, first_s: float | None) -> None:
        """The first text came after `first_s` seconds; None: there was none to wait for."""
        slow = first_s is not None and first_s > self._breaker.slow_s
        self._report(_Result.SLOW if slow else _Result.GOOD)

    def failed(self) -> None:
        self._report(_Result.FAILED)

    def throttled(self, retry_after_s: float) -> None:
        """The backend is to be left alone for `retry_after_s` seconds; 0: it did not say for how long."""
        self._breaker._throttle(self._epoch, retry_after_s)

    def silent(self) -> None:
        """The caller left after more than `slow_s` seconds, and nothing had come."""
        self._report(_Result.SILENT)

    def withdrawn(self) -> None:
        """The end of the call is no sample, however long it took."""
        self._report(_Result.NONE)

    def _report(self, result: _Result) -> None:
        self._breaker._record(self._epoch, self.probe, result)


class Breaker:
    """Lets calls to a backend through, or not. Rates are shares of the calls of the last `window_s` seconds."""

    def __init__(
        self,
        name: str,
        *,
        window_s: float,
        min_calls: int,
        in_a_row: int,
        failure_rate: float,
        slow_rate: float,
        slow_s: float,
        open_s: float,
        clock: Clock = time.monotonic,
        rng: random.Random = _RANDOM,
        on_change: Callable[[Breaker, State], None] | None = None,
        in_metrics: bool = True,
    ):
        """`in_a_row`: failures that open it at once. `min_calls`: fewer calls in the window are ignored. `open_s`:
        seconds from opening to the first probe, give or take 20%."""
        self.name, self.slow_s, self.clock = name, slow_s, clock
        self._window = CountWindow(window_s)
        self._window_s, self._min_calls, self._open_s, self._rng = window_s, min_calls, open_s, rng
        self._in_a_row, self._failed_in_a_row = in_a_row, 0
        self._failure_rate, self._slow_rate = failure_rate, slow_rate
        self._on_change = on_change
        self._state = State.CLOSED
        self._why = ""
        self._epoch = 0  # how often it has opened: separates calls from before and after
        self._until = 0.0
        self._probing = self._throttled = False
        self._open_logged, self._lines = False, LineLimit(clock)  # whether the log says that it is open
        self._in_metrics = in_metrics
        self._measure(State.CLOSED)

    @property
    def state(self) -> State:
        """The state. After its time an open breaker stays open until the next call probes."""
        return self._state

    @property
    def why(self) -> str:
        """Why it is not closed, for people; empty when it is closed."""
        return self._why

    @property
    def throttled(self) -> bool:
        """Whether it is not closed because the backend asked for that."""
        return self._throttled and self._state is not State.CLOSED

    def enter(self) -> Permit | None:
        """A permit for a call now, or None. While half open, one call at a time gets it: the probe."""
        if self._state is State.CLOSED:
            return Permit(self, self._epoch, False)
        if not self.would_admit():
            return None
        if self._state is State.OPEN:
            self._become(State.HALF_OPEN)
        self._probing = True
        return Permit(self, self._epoch, True)

    def would_admit(self) -> bool:
        """Whether `enter` would return a permit. Changes nothing."""
        if self._state is State.CLOSED:
            return True
        return not self._probing and self.clock() >= self._until

    def retry_after_s(self) -> float:
        """Seconds until the next call may be permitted; 0 when it is now."""
        if self.would_admit():
            return 0.0
        return self._open_s if self._probing else self._until - self.clock()

    def disconnected(self) -> None:
        """The connection is lost: calls would fail, so none need to find that out."""
        if self._state is State.CLOSED:
            self._open(self._jittered_open_s(), "no connection")

    def connected(self) -> None:
        """The connection is there again: the next call may probe, unless the backend itself asked to be left alone."""
        if self._state is State.OPEN and not self._throttled:
            self._until = self.clock()

    def started(self) -> None:
        """The backend has started, as its health says. It is called as if it had never failed, and no call need probe:
        calls that have waited for it come at once. Has no effect while the backend wants to be left alone."""
        if self.throttled:
            return
        self._epoch += 1
        self._window.clear()
        self._failed_in_a_row, self._probing, self._why = 0, False, ""
        if self._state is not State.CLOSED:
            self._become(State.CLOSED)

    def forget(self) -> None:
        """The backend is gone for good: remove its metrics, which would otherwise grow with every new backend. Calls
        still under way report nothing to them any more."""
        self._in_metrics, self._on_change = False, None
        for metric, labels in [
            (_OPEN, (self.name,)),
            *((_CHANGES, (self.name, state.name.lower())) for state in State),
        ]:
            with suppress(KeyError):
                metric.remove(*labels)

    def _record(self, epoch: int, probe: bool, result: _Result) -> None:
        if epoch != self._epoch:
            return
        if probe:
            self._after_probe(result)
        elif result is not _Result.NONE:
            self._count(result)

    def _count(self, result: _Result) -> None:
        now = self.clock()
        counts = self._window.current(now)
        counts.calls += 1
        if result in (_Result.GOOD, _Result.SLOW):
            self._failed_in_a_row = 0
        if result is _Result.GOOD:  # never opens it
            return
        self._failed_in_a_row += result is _Result.FAILED
        counts.failed += result is _Result.FAILED
        counts.slow += result is not _Result.FAILED
        if reason := self._reason(self._window.total(now)):
            self._open(self._jittered_open_s(), reason)

    def _reason(self, counts: CallCounts) -> str:
        """Why these counts open it; empty when they do not."""
        if self._failed_in_a_row >= self._in_a_row:
            return f"{self._failed_in_a_row} calls in a row failed"
        if counts.calls < self._min_calls:
            return ""
        if counts.failed >= counts.calls * self._failure_rate:
            return f"{counts.failed} of {counts.calls} calls failed in {self._window_s:g} s"
        if counts.slow >= counts.calls * self._slow_rate:
            slow = f"{counts.slow} of {counts.calls} calls in {self._window_s:g} s"
            return f"{slow} took more than {self.slow_s:g} s to first text"
        return ""

    def _after_probe(self, result: _Result) -> None:
        self._probing = False
        if result is _Result.GOOD:
            self._window.clear()
            self._why = ""
            self._become(State.CLOSED)
            if self._open_logged:
                self._open_logged = False
                _log.info("breaker of %s closes", self.name)
        elif result is not _Result.NONE:
            self._open(self._jittered_open_s(), f"the probe {'failed' if result is _Result.FAILED else 'was slow'}")

    def _throttle(self, epoch: int, retry_after_s: float) -> None:
        pause_s = retry_after_s or self._open_s
        seconds = pause_s * (1 + _THROTTLE_JITTER * self._rng.random())
        if epoch == self._epoch:
            self._open(seconds, f"rate limited: it asked for a pause of {pause_s:.1f} s")
            self._throttled = True
        elif self._state is State.OPEN:  # it began before, and may know of a longer time
            self._until = max(self._until, self.clock() + seconds)

    def _open(self, seconds: float, why: str) -> None:
        if self._state is State.CLOSED and self._lines.take() is not None:  # not after each probe
            self._open_logged = True
            _log.warning("breaker of %s opens: %s", self.name, why)
        self._epoch += 1
        self._probing, self._throttled, self._failed_in_a_row = False, False, 0
        self._until, self._why = self.clock() + seconds, why
        self._become(State.OPEN)

    def _jittered_open_s(self) -> float:
        return self._open_s * self._rng.uniform(1 - _PROBE_JITTER, 1 + _PROBE_JITTER)

    def _become(self, state: State) -> None:
        self._state = state
        self._measure(state)
        if self._in_metrics:
            _CHANGES.labels(self.name, state.name.lower()).inc()
        if self._on_change:
            self._on_change(self, state)

    def _measure(self, state: State) -> None:
        if self._in_metrics:
            _OPEN.labels(self.name).set(state.value)
