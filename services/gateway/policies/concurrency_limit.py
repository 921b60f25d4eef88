"""The limit of concurrent calls to a backend, learned from its latency.

Three limits with one interface: `FixedLimit` stays, `Aimd` follows thresholds in seconds, `Gradient2` compares the
present latency with its long average and needs no threshold. They get one `Sample` for each call and judge windows of
samples: with language models the slowest call of ten reflects its prompt, not congestion.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, inf, log, sqrt
from statistics import fmean, linear_regression, median
from typing import NamedTuple, Protocol

from services.runtime.deadline import Clock

_MIN_WINDOW_S = 0.25
_MAX_WINDOW_S = 1.0
_BACKOFF = 0.9  # for a refused call, as Netflix's AIMDLimit
# Of `Gradient2`.
_SMOOTHING = 0.2
_TOLERANCE = 1.5
_QUEUE_SIZE = 4
_LONG_WEIGHT = 2 / (600 + 1)
_WARM_UP = 10
_LEAST_GRADIENT, _MOST_GRADIENT = 0.5, 2.0
_NEARLY_LOWEST = 1.1  # of the lowest limit: a limit up to there counts as the lowest
_MOST_BEYOND = 1.5  # times the limit in flight: `Limiter` lets tenants within their share exceed it
_SLOW_WINDOWS, _FEWEST_SLOW = 20, 5  # the latest that are compared, and how many it takes
_LEAST_SPREAD = 0.3  # sum of squares of log calls in flight: five windows evenly between n and 2 × n
_INELASTIC = 0.5  # below it, twice the calls bring at least 1.4 times the answers
_LEARNED_SHARE = 0.8  # of the slow windows' mean time, which the long average then becomes
_IN_USE_WEIGHT = 1 / 300


@dataclass(frozen=True, slots=True)
class Sample:
    """A call's evidence about its backend."""

    first_s: float  # seconds to the first token
    queue_s: float | None  # seconds of these in the engine's queue; None: the engine does not report them
    in_flight: int  # calls in flight when it began, itself included
    failed: bool = False  # refused for overload (RESOURCE_EXHAUSTED); its times say nothing


class Limit(Protocol):
    """The most calls in flight at once."""

    @property
    def value(self) -> int: ...

    def sample(self, sample: Sample) -> None:
        """Learn from a call that has had its first token, or was refused."""


class FixedLimit:
    """Always `value`."""

    def __init__(self, value: int):
        self.value = value

    def sample(self, sample: Sample) -> None:
        """A fixed limit learns nothing."""


class _Adaptive(ABC):
    """The base of both adaptive limits: windows, bounds and the reaction to refusals. A window has at least
    `_min_samples`, because fewer give no useful median. It lasts at least 0.25 s, so that the effect of a change is
    visible before the next one; for the same reason it lasts as long as the calls in the window before, up to 1 s.
    Calls that are refused together count once: they shrink the limit once in 0.25 s."""

    _min_samples = 10

    def __init__(self, initial: int, low: int, high: int, clock: Clock = time.monotonic):
        self._low, self._high, self._clock = low, high, clock
        self._limit = float(min(max(initial, low), high))
        self._window: list[Sample] = []
        self._window_ends = clock() + _MIN_WINDOW_S
        self._refused_at = float("-inf")

    @property
    def value(self) -> int:
        return int(self._limit)

    def sample(self, sample: Sample) -> None:
        if sample.failed:
            self._shrink()
            return
        self._window.append(sample)
        if len(self._window) >= self._min_samples and self._clock() >= self._window_ends:
            window, self._window = self._window, []
            median_s = median(sample.first_s for sample in window)
            self._window_ends = self._clock() + min(max(median_s, _MIN_WINDOW_S), _MAX_WINDOW_S)
            self._adjust(window, median_s)

    @abstractmethod
    def _adjust(self, window: Sequence[Sample], median_s: float) -> None:
        """Set the limit by a full window, whose median time to the first token is `median_s`."""

    def _set(self, limit: float) -> None:
        self._limit = min(max(limit, self._low), self._high)

    def _shrink(self) -> None:
        now = self._clock()
        if now - self._refused_at >= _MIN_WINDOW_S:
            self._refused_at = now
            self._set(self._limit * _BACKOFF)

    def _in_use(self, window: Sequence[Sample]) -> bool:
        """Whether half of the limit was in use. A limit that is not half used must not grow."""
        return max(sample.in_flight for sample in window) >= self._limit / 2


class Aimd(_Adaptive):
    """Additive both ways: +5 when 95 of 100 calls have their first token within 0.5 s, -10 when not within 1 s."""

    _min_samples = 20  # of fewer samples the slowest is the 95th percentile

    def _adjust(self, window: Sequence[Sample], median_s: float) -> None:
        times = sorted(sample.first_s for sample in window)
        p95 = times[ceil(0.95 * len(times)) - 1]
        if p95 > 1.0:
            self._set(self._limit - 10)
        elif p95 < 0.5 and self._in_use(window):
            self._set(self._limit + 5)


class Gradient2(_Adaptive):
    """Netflix's Gradient2: the limit follows the ratio of the long average of times to the present one.

        gradient = clamp(tolerance × long / short, 0.5, 2)
        limit    = 0.8 × limit + 0.2 × (gradient × limit + queue size)

    Source: https://github.com/Netflix/concurrency-limits, `Gradient2Limit.java` in
    concurrency-limits-core/src/main/java/com/netflix/concurrency/limits/limit, with its parameters: smoothing 0.2, long
    window 600, tolerance 1.5, queue size 4. Under overload it settles at 1.5 × the backend's slots + 4.

    Four departures:

    - The *short* time is a window's median, where Netflix takes each sample: the latency of language models has a heavy
      tail, and a tail is not congestion.
    - The gradient may be up to 2, as in Envoy's gradient controller
      (https://www.envoyproxy.io/docs/envoy/latest/configuration/http/http_filters/adaptive_concurrency_filter), where
      Netflix has 1: a window comes once a second, and the queue size alone would add 0.8 to the limit with each. Until
      the first slow window the limit is at least twice the calls in flight when an answered call began, as in TCP's
      slow start (RFC 5681, section 3.1). A higher limit would leave it less than half used, and not judged.
    - The *long* average must not learn the queue that the limit itself makes, or under lasting overload it learns the
      present time, and the limit drifts up. Where the engine reports a call's time in its queue, the average learns the
      rest. Otherwise, while half of the limit is in use, the average learns from calls that began with no more in
      flight than the lowest limit, and from windows without such calls 300 times more slowly. The calls of the first
      window are those that ended first; the later ones of them correct its median.
    - A backend may become slower for reasons of its own, as a provider in its busy hours. The elasticity of time to
      calls in flight is 1 where calls queue for slots, and 0 where fewer calls would be no faster. If it is below 0.5
      for the latest slow windows, with two standard errors to spare, the average becomes 0.8 of their mean, and the
      limit grows again as after a start. The windows' calls in flight must differ. Uber's Cinnamon judges by the
      covariance of calls in flight and throughput
      (https://www.uber.com/blog/cinnamon-auto-tuner-adaptive-concurrency-in-the-wild/). At the lowest limit, where
      calls in flight cannot differ, five slow windows are enough, as in Envoy. A backend with fewer slots than that
      queues calls there, and the limit settles at about twice the lowest.
    """

    def __init__(self, initial: int, low: int, high: int, clock: Clock = time.monotonic):
        super().__init__(initial, low, high, clock)
        self._long_average = _LongAverage()
        self._starting = True  # no window has been slow since the start, or since the average was corrected
        # The limit up to which it settles while all windows are slow.
        self._lowest = max(low, _QUEUE_SIZE / (1 - _LEAST_GRADIENT)) * _NEARLY_LOWEST
        self._slow = deque[_SlowWindow](maxlen=_SLOW_WINDOWS)

    def sample(self, sample: Sample) -> None:
        if self._starting and not sample.failed:
            self._set(max(self._limit, 2 * sample.in_flight))
        super().sample(sample)

    def _adjust(self, window: Sequence[Sample], median_s: float) -> None:
        in_use = self._in_use(window)
        self._learn(window, median_s, in_use)
        if in_use:
            gradient = _TOLERANCE * self._long_average.value / max(median_s, 1e-9)
            gradient = min(max(gradient, _LEAST_GRADIENT), _MOST_GRADIENT)
            if gradient < 1:
                self._note_slow(_SlowWindow(median(sample.in_flight for sample in window), median_s))
            elif self._slow:
                self._slow.popleft()
            self._set(self._limit * (1 - _SMOOTHING) + (self._limit * gradient + _QUEUE_SIZE) * _SMOOTHING)

    def _learn(self, window: Sequence[Sample], median_s: float, in_use: bool) -> None:
        served = [sample.first_s - sample.queue_s for sample in window if sample.queue_s is not None]
        if served:
            self._long_average.learn(max(median(served), 0.0))
        elif not in_use:
            self._long_average.learn(median_s)
        elif few := [sample.first_s for sample in window if sample.in_flight <= self._low]:
            self._long_average.learn(median(few))
        else:
            self._long_average.learn_slowly(median_s)
        # After a slow period, Netflix lets the average fall faster than new times alone would.
        if self._long_average.value > 2 * median_s:
            self._long_average.value *= 0.9

    def _note_slow(self, window: _SlowWindow) -> None:
        """Note a slow window. Where the calls in flight are not the reason, learn the present time."""
        self._starting = False
        self._slow.append(window)
        if len(self._slow) >= _FEWEST_SLOW and self._is_slow_by_itself():
            self._long_average.value = _LEARNED_SHARE * fmean(each.time_s for each in self._slow)
            self._slow.clear()
            self._starting = True

    def _is_slow_by_itself(self) -> bool:
        """Whether the slow windows show that the calls in flight are not the reason."""
        in_flight = max(each.in_flight for each in list(self._slow)[-_FEWEST_SLOW:])
        if self._limit <= self._lowest and in_flight <= self._lowest * _MOST_BEYOND:
            return True
        return _greatest_elasticity(self._slow) < _INELASTIC


class _SlowWindow(NamedTuple):
    """The medians of a window: calls in flight when its calls began, and their time."""

    in_flight: float
    time_s: float


def _greatest_elasticity(windows: Collection[_SlowWindow]) -> float:
    """The elasticity of time to calls in flight, and two standard errors: the slope of a least-squares line through
    their logarithms. Infinite where the calls in flight differ too little."""
    calls = [log(each.in_flight) for each in windows]
    times = [log(max(each.time_s, 1e-9)) for each in windows]
    mean = fmean(calls)
    spread = sum((each - mean) ** 2 for each in calls)
    if spread < _LEAST_SPREAD:
        return inf
    slope, level = linear_regression(calls, times)
    rest = sum((at - level - slope * of) ** 2 for of, at in zip(calls, times, strict=True))
    return slope + 2 * sqrt(rest / (len(calls) - 2) / spread)


class _LongAverage:
    """Exponential average over about 600 values; the plain mean of the first ten (Netflix's `ExpAvgMeasurement`)."""

    def __init__(self) -> None:
        self.value = 0.0
        self._seen = 0

    def learn(self, value: float) -> None:
        self._seen += 1
        self._move(value, 1 / self._seen if self._seen <= _WARM_UP else _LONG_WEIGHT)

    def learn_slowly(self, value: float) -> None:
        """Give `value` a small part of its due weight, unless it is the first."""
        if not self._seen:
            self.learn(value)
        self._move(value, _LONG_WEIGHT * _IN_USE_WEIGHT)

    def _move(self, value: float, weight: float) -> None:
        self.value += (value - self.value) * weight
