"""Token buckets: one that fills with time, and one that fills with requests.

The second is how retries and hedges are kept a share of the traffic: a limit per second would be too much when there is
little traffic and too little when there is much. Sources: Finagle's `RetryBudget`
(https://github.com/twitter/finagle/blob/develop/finagle-core/src/main/scala/com/twitter/finagle/service/RetryBudget.scala)
and tower's (https://github.com/tower-rs/tower/blob/master/tower/src/retry/budget/tps_budget.rs). Both add a reserve of
some retries a second; there is none here. So of any n requests in a row at most share × n + burst are followed by an
extra call: what quiet traffic has saved may be spent at once. A budget that starts empty allows share × n from the
start: that of hedges. That of retries starts with its burst, in place of the reserve.
"""

from __future__ import annotations

import time

from services.runtime.deadline import Clock

_ROUNDING = 1e-6  # of a token: a caller that waited for `wait_s` is not refused for the last bit of a float


class TokenBucket:
    """Fills with `rate_per_s` tokens a second, up to `burst`. It starts full."""

    __slots__ = ("_at", "_burst", "_clock", "_level", "_rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, clock: Clock = time.monotonic):
        self._rate_per_s, self._burst, self._clock = rate_per_s, burst, clock
        self._level, self._at = burst, clock()

    @property
    def rate_per_s(self) -> float:
        return self._rate_per_s

    @rate_per_s.setter
    def rate_per_s(self, value: float) -> None:
        self.level()  # the time until now counts at the old rate
        self._rate_per_s = value

    @property
    def burst(self) -> float:
        return self._burst

    @burst.setter
    def burst(self, value: float) -> None:
        """Set the burst. The time since the last look fills the bucket up to the new burst."""
        self._burst = max(self._burst, value)
        self._level = min(self.level(), value)
        self._burst = value

    def level(self) -> float:
        """The current number of tokens; below 0 after `force`."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._at) * self._rate_per_s)
        self._at = now
        return self._level

    def take(self, amount: float = 1.0) -> bool:
        """Take `amount` tokens if the bucket has them."""
        level = self.level()
        if level < amount - _ROUNDING:
            return False
        self._level = max(0.0, level - amount)
        return True

    def force(self, amount: float) -> None:
        """Take `amount` tokens in any case, for work that cost more than was taken."""
        self._level = self.level() - amount

    def put(self, amount: float) -> None:
        """Return tokens; those beyond the burst are lost."""
        self._level = min(self._burst, self.level() + amount)

    def wait_s(self, amount: float = 1.0) -> float:
        """Seconds until the bucket has `amount` tokens; infinite if it never will."""
        missing = amount - self.level()
        if missing <= 0:
            return 0.0
        if not self._rate_per_s or amount > self._burst:
            return float("inf")
        return missing / self._rate_per_s


class ExtraBudget:
    """How many extra calls (hedges, retries) there may be: at most `share` of the requests seen, `burst` saved up: over
    n requests in a row `share` × n + `burst`, and `share` × n + `start` from the start."""

    __slots__ = ("_burst", "_level", "_share")

    def __init__(self, share: float, burst: float, start: float = 0.0):
        self._share, self._burst = share, burst
        self._level = min(start, burst)

    def seen(self) -> None:
        """Count a request, which earns `share` of an extra call."""
        self._level = min(self._burst, self._level + self._share)

    @property
    def level(self) -> float:
        """The current number of tokens, with fractions."""
        return self._level

    @property
    def ready(self) -> bool:
        """Whether the tokens suffice for an extra call."""
        return self._level >= 1 - _ROUNDING

    def spend(self) -> bool:
        """Take the tokens of an extra call, if they suffice."""
        if not self.ready:
            return False
        self._level = max(0.0, self._level - 1)
        return True

    def refund(self) -> None:
        """Return the tokens of an extra call that was not made."""
        self.put(1)

    def put(self, amount: float) -> None:
        """Add tokens earned elsewhere; those beyond the burst are lost."""
        self._level = min(self._burst, self._level + amount)

    def draw(self, keep: float) -> float:
        """Remove and return the tokens above `keep`, for use elsewhere."""
        over = max(0.0, self._level - keep)
        self._level -= over
        return over
