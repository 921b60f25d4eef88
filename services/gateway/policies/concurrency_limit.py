"""How many calls a backend may have at once, learned from how it answers.

Three limits with one interface: `Fixed` stays, `Aimd` follows a rule in seconds, `Gradient2` compares current with
usual latency and needs no figure for what is fast. They get one `Sample` for each call and judge samples by the window,
never one by one: with language models the slowest call of ten reflects its prompt, not congestion.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median
from typing import Protocol

from services.runtime.deadline import Clock

_MIN_WINDOW_S = 0.25
_MAX_WINDOW_S = 1.0
_BACKOFF = 0.9  # for a refused call, as Netflix's AIMDLimit

_SMOOTHING = 0.2
_TOLERANCE = 1.5
_QUEUE_SIZE = 4
_LONG_WEIGHT = 2 / (600 + 1)
_WARM_UP = 10
_STEEPEST = 0.5  # gradient
_NEARLY, _CONVINCING, _CAUTIOUS = 1.1, 5, 0.8
_SATURATED_SHARE = 0.75
_SATURATED_PACE = 1 / 300


@dataclass(frozen=True, slots=True)
class Sample:
    """The sample of one call about its backend."""

    first_s: float  # seconds to the first token
    queue_s: float | None  # how many of them the engine says it queued; None: it does not say
    in_flight: int  # calls in flight when it began, itself included
    failed: bool = False  # refused for overload (RESOURCE_EXHAUSTED); its times say nothing


class Limit(Protocol):
    """How many calls may be in flight at once."""

    @property
    def value(self) -> int: ...

    def sample(self, sample: Sample) -> None:
        """Learn from a call that has had its first token, or was refused."""


class Fixed:
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
            self._refused()
            return
        self._window.append(sample)
        if len(self._window) >= self._min_samples and self._clock() >= self._window_ends:
            window, self._window = self._window, []
            typical_s = median(sample.first_s for sample in window)
            self._window_ends = self._clock() + min(max(typical_s, _MIN_WINDOW_S), _MAX_WINDOW_S)
            self._judge(window, typical_s)

    @abstractmethod
    def _judge(self, window: Sequence[Sample], typical_s: float) -> None:
        """Set the limit by a full window, whose median time to the first token is `typical_s`."""

    def _set(self, limit: float) -> None:
        self._limit = min(max(limit, self._low), self._high)

    def _refused(self) -> None:
        now = self._clock()
        if now - self._refused_at >= _MIN_WINDOW_S:
            self._refused_at = now
            self._set(self._limit * _BACKOFF)

    def _in_use(self, window: Sequence[Sample], share: float = 0.5) -> bool:
        """Whether that much of the limit was in use. One that is not half used must not grow."""
        return max(sample.in_flight for sample in window) >= self._limit * share


class Aimd(_Adaptive):
    """Additive both ways: +5 when 95 of 100 calls have their first token within 0.5 s, -10 when not within 1 s."""

    _min_samples = 20  # of fewer, the slowest would be the 95th of a hundred

    def _judge(self, window: Sequence[Sample], typical_s: float) -> None:
        times = sorted(sample.first_s for sample in window)
        p95 = times[ceil(0.95 * len(times)) - 1]
        if p95 > 1.0:
            self._set(self._limit - 10)
        elif p95 < 0.5 and self._in_use(window):
            self._set(self._limit + 5)


class Gradient2(_Adaptive):
    """Netflix's Gradient2: the limit follows the ratio of the usual time to the present one.

        gradient = clamp(tolerance × long / short, 0.5, 1)
        limit    = 0.8 × limit + 0.2 × (gradient × limit + queue size)

    Source: https://github.com/Netflix/concurrency-limits, `Gradient2Limit.java` in
    concurrency-limits-core/src/main/java/com/netflix/concurrency/limits/limit, with its parameters: smoothing 0.2, long
    window 600, tolerance 1.5, queue size 4. Under overload it settles at 1.5 × the backend's slots + 4.

    Two departures. The *short* time is a window's median, where Netflix takes each sample: the latency of language
    models has a heavy tail, and a tail is not congestion. And the *long* average must not learn the queue that the
    limit itself makes, or under lasting overload the present becomes the usual, and the limit drifts up. Where the
    engine says how long a call queued, the average learns the rest. Where it does not say, the average learns 300
    times more slowly while calls run near the limit (three quarters of it, because it may have grown since they began):
    in overload the limit drifts by a tenth in an hour or so.

    A backend may become slower for reasons of its own, as a provider in its busy hours: then fewer calls make it no
    faster. That shows at the lowest limit: where five windows in a row are slow there, 0.8 of their mean becomes the
    usual time, and the limit grows again for as long as calls become no slower. A backend with fewer slots than the
    lowest limit queues calls there too; then the limit settles at up to twice the lowest.
    """

    def __init__(self, initial: int, low: int, high: int, clock: Clock = time.monotonic):
        super().__init__(initial, low, high, clock)
        self._usual = _LongAverage()
        # Where it settles while all windows are slow, or nearly so.
        self._lowest = max(low, _QUEUE_SIZE / (1 - _STEEPEST)) * _NEARLY
        self._slow_at_lowest = list[float]()  # times of windows

    def _judge(self, window: Sequence[Sample], typical_s: float) -> None:
        served = [sample.first_s - sample.queue_s for sample in window if sample.queue_s is not None]
        present_s = max(median(served), 0.0) if served else typical_s
        if served or not self._in_use(window, _SATURATED_SHARE):
            self._usual.learn(present_s)
        else:
            self._usual.learn_slowly(present_s)
        # Once the backend is well again, Netflix forgets the bad times faster than the average would.
        if self._usual.value > 2 * typical_s:
            self._usual.value *= 0.9
        if self._in_use(window):
            gradient = min(max(_TOLERANCE * self._usual.value / max(typical_s, 1e-9), _STEEPEST), 1.0)
            self._set(self._limit * (1 - _SMOOTHING) + (self._limit * gradient + _QUEUE_SIZE) * _SMOOTHING)
            self._learn_at_lowest(present_s, slow=gradient < 1)

    def _learn_at_lowest(self, present_s: float, *, slow: bool) -> None:
        """After five slow windows in a row at the lowest limit 0.8 of their mean is the usual time."""
        if not slow or self._limit > self._lowest:
            self._slow_at_lowest.clear()
            return
        self._slow_at_lowest.append(present_s)
        if len(self._slow_at_lowest) == _CONVINCING:
            self._usual.value = _CAUTIOUS * fmean(self._slow_at_lowest)
            self._slow_at_lowest.clear()


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
        self._move(value, _LONG_WEIGHT * _SATURATED_PACE)

    def _move(self, value: float, weight: float) -> None:
        self.value += (value - self.value) * weight
