"""The usual behaviour of a backend: its time to an answer, for work of a known amount too, and its token rate with a
detector of drops."""

from __future__ import annotations

import time

from prometheus_client import Gauge

from services.runtime.deadline import Clock
from services.runtime.digest import WindowedDigest

_WINDOW_S = 600.0
_QUANTILE = 0.95
MIN_ANSWERS = 20  # of fewer, the slowest would be the 95th of a hundred
_ALPHA = 2 / (10 + 1)  # an average over about ten answers
_FLOOR, _RECOVERED = 0.5, 0.7  # ratios of the usual token rate
_MEMORY_S = 60.0
_MIN_TOKENS = 4
_MIN_SECONDS = 0.001  # less came in one piece, and has no rate
_MIN_ANSWERS = 20
_MOST = 2.0  # an answer that came in few pieces may have any rate; it must not hide the others
_RATIO = Gauge("hedgerow_token_rate_ratio", "Token rate of a model's last answers over its baseline.", ["model"])


class LatencyBaseline:
    """How long a backend usually takes to its first sign of life, and so whether a silence is a failure. It is that of
    one backend, or of all replicas of one model.

    A call that ended before anything came, by its deadline or because another was faster, is no sample of a backend
    that had less time than it usually needs. With that much time, the silence is a failure: a policy that counted only
    errors would call a backend well that accepts everything and answers nothing.

    Only answered calls are samples, because otherwise silence would become usual. Until there are enough, `expected_s`
    stands in; it may be replaced when a better value is known.
    """

    def __init__(self, expected_s: float, clock: Clock = time.monotonic):
        self.expected_s, self.clock = expected_s, clock
        self._answers = WindowedDigest(_WINDOW_S, clock)

    def add(self, after_s: float) -> None:
        """Add a call that was answered `after_s` seconds after its beginning, by its first text or its reply."""
        self._answers.add(after_s)

    def quantile_s(self, quantile: float) -> float | None:
        """A quantile of the answers of the last ten minutes; None where there are too few."""
        return self._answers.quantile(quantile) if self._answers.count >= MIN_ANSWERS else None

    def needs_s(self) -> float:
        """The time that 95 of 100 recent calls needed at most, else the expected time."""
        return self.quantile_s(_QUANTILE) or self.expected_s

    def is_overdue(self, silent_s: float) -> bool:
        """Whether a silence of this length is a failure."""
        return silent_s >= self.needs_s()


class WorkBaseline:
    """How long a backend usually takes for a known amount of work: for so many pictures, or seconds of audio.

    Both of two times: that of all calls (`calls`), whose overhead a small amount has too, and that of each unit times
    the amount. So a large amount has its time, and a backend is not called silent by callers that give too little.
    """

    def __init__(self, calls: LatencyBaseline, each_s: float):
        """`each_s`: for a unit, until there are enough answers."""
        self.clock = calls.clock
        self._calls, self._each = calls, LatencyBaseline(each_s, calls.clock)

    def add(self, amount: float, took_s: float) -> None:
        """Add work that was done."""
        if amount > 0:
            self._each.add(took_s / amount)

    def needs_s(self, amount: float) -> float:
        """The time that 95 of 100 recent calls would have needed at most for this amount, else the expected time."""
        return max(self._calls.needs_s(), amount * self._each.needs_s())


class ThroughputDrop:
    """A drop of a model's token rate, an early sign of throttling: it shows while first tokens are still on time and
    nothing is refused.

    The rate of the last answers (about ten of them) is compared with the median rate of the last ten minutes. The rate
    has dropped from a ratio below 0.5 on, until it is above 0.7 again. A drop that lasts for more than half
    of the ten minutes ends, because it has become usual.

    The ratio is an exponential average of each answer's rate over the usual one. A rate is never below 0, so one
    stalled answer moves it from 1 to 0.82 at most, and it takes four of them in a row to reach 0.5.
    """

    def __init__(self, model: str, clock: Clock = time.monotonic):
        self._clock = clock
        self._rates = WindowedDigest(_WINDOW_S, clock)
        self._ratio, self._active, self._seen_at = 1.0, False, clock()
        self._gauge = _RATIO.labels(model)
        self._gauge.set(1)

    def add(self, tokens: int, seconds: float) -> None:
        """An answer sent `tokens` between its first message and its last, in `seconds`. Tokens that are only counted at
        the end, such as hidden reasoning, are left out. Fewer than four tokens are ignored."""
        if tokens < _MIN_TOKENS or seconds < _MIN_SECONDS:
            return
        rate = tokens / seconds
        if self._is_old():
            self._ratio, self._active = 1.0, False
        self._seen_at = self._clock()
        self._rates.add(rate)
        self._follow(rate)

    def ratio(self) -> float:
        """The rate of the last answers over the usual rate; 1 is as usual, also where there are too few answers."""
        return 1.0 if self._is_old() else self._ratio

    @property
    def active(self) -> bool:
        """Whether the rate has dropped. After a minute without answers: no, because a model that is avoided could not
        recover."""
        return self._active and not self._is_old()

    def _follow(self, rate: float) -> None:
        usual = self._rates.quantile(0.5)
        if not usual or self._rates.count < _MIN_ANSWERS:
            return
        self._ratio += _ALPHA * (min(rate / usual, _MOST) - self._ratio)
        self._active = self._ratio < (_RECOVERED if self._active else _FLOOR)
        self._gauge.set(self._ratio)

    def _is_old(self) -> bool:
        return self._clock() - self._seen_at > _MEMORY_S
