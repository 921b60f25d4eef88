"""How starved this process is, which no limit of a backend can see.

One event loop serves everybody. When it has more to do than its core can, each callback runs late, and every request
pays. The lag alone is not enough to refuse anybody: one slow callback, or a machine that stood still, is over before a
refusal helps. So the lag counts only while the process also uses the CPU it may use.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from prometheus_client import Gauge

from services.runtime.deadline import Clock

_EVERY_S = 0.1
_SMOOTHING = 0.3  # about 0.7 s until 9 tenths of a change are seen

_LAG = Gauge("hedgerow_loop_lag_seconds", "How late the event loop runs its callbacks, smoothed.")
_CORES = Gauge("hedgerow_cpu_cores", "CPU seconds that this process uses in a second, smoothed.")


class Pressure:
    """The process's load: 1 when its event loop runs `lag_limit_s` late while it uses `cpu_limit` cores or more."""

    def __init__(
        self,
        lag_limit_s: float,
        cpu_limit: float,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ):
        self._lag_limit_s, self._cpu_limit = lag_limit_s, cpu_limit
        self._clock, self._cpu_clock, self._sleep = clock, cpu_clock, sleep
        self._lag_s = self._cores = 0.0

    def value(self) -> float:
        """The smoothed lag over its limit; 0 while there is CPU left."""
        return self._lag_s / self._lag_limit_s if self._cores >= self._cpu_limit else 0.0

    async def run(self) -> None:
        """Watch, until cancelled."""
        while True:
            began, cpu_began = self._clock(), self._cpu_clock()
            await self._sleep(_EVERY_S)
            took_s = self._clock() - began
            if took_s > 0:
                self._saw(max(took_s - _EVERY_S, 0.0), (self._cpu_clock() - cpu_began) / took_s)

    def _saw(self, lag_s: float, cores: float) -> None:
        self._lag_s += (lag_s - self._lag_s) * _SMOOTHING
        self._cores += (cores - self._cores) * _SMOOTHING
        _LAG.set(self._lag_s)
        _CORES.set(self._cores)
