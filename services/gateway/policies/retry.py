"""The budget of retries, and the pause before a retry.

Retried are calls that failed before any effect, with UNAVAILABLE or another `retryable` error, in one layer above the
failure alone, and never past the deadline.
A call that was throttled is repeated without a pause, and at another backend alone: the breaker keeps calls from the
first one for as long as its `retry-after` says.
The budget is a share of the requests, as in Finagle's `RetryBudget` and Envoy's `retry_budget` (both 20%): if all calls
fail, retries add a fifth to the load and not a multiple. The budget starts with its burst, so that calls shortly after
a start can be retried too. The pause before a retry is random ("full jitter",
https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/), so that callers that failed together
do not retry together.
"""

from __future__ import annotations

import random

from services.runtime.errors import ServiceError
from services.runtime.policy.bucket import ExtraBudget


class RetryBudget:
    """The retries of a process: a `share` of its requests, and `burst` after a start. A `share` of 0 turns retries off.
    A pause is random, at most `base_s` seconds."""

    def __init__(self, share: float, burst: float, base_s: float, rng: random.Random | None = None):
        self._budget = ExtraBudget(share, burst, start=burst if share else 0.0)
        self._base_s, self._rng = base_s, rng or random.Random()

    def count_request(self) -> None:
        """Add a request's share to the budget."""
        self._budget.seen()

    @property
    def ready(self) -> bool:
        """Whether the budget has a retry."""
        return self._budget.ready

    def spend(self) -> bool:
        """Take a retry from the budget without a pause, for a call that another backend takes over. False: the budget
        is used up."""
        return self._budget.spend()

    def refund(self) -> None:
        """Return the cost of a retry that was not made."""
        self._budget.refund()

    def pause_s(self, error: ServiceError, remaining_s: float) -> float | None:
        """The pause before a retry, in seconds, which is then taken from the budget; None: no retry."""
        pause = self._rng.uniform(0, self._base_s)
        if not error.retryable or pause >= remaining_s or not self._budget.spend():
            return None
        return pause
