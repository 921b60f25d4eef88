"""Retry: another call where one failed before it had any effect, within a budget.

Only UNAVAILABLE (and errors that are `retryable`), only one layer above the failure, never past the deadline. The
budget is a share of the requests, as in Finagle's `RetryBudget` and Envoy's `retry_budget` (both 20%): when everything
fails, retries add a fifth to the load and not a multiple. It starts with its burst, so that the first calls after a
start are retried too, when a server dies then. The pause before a retry is random ("full jitter",
https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/), so that callers that failed together
do not come back together.
"""

from __future__ import annotations

import random

from services.runtime.errors import ServiceError
from services.runtime.policy.bucket import ExtraBudget


class Retry:
    """The retries of a whole process. A `share` of 0 turns them off."""

    def __init__(self, share: float, burst: float, base_s: float, rng: random.Random | None = None):
        self._budget = ExtraBudget(share, burst, start=burst if share else 0.0)
        self._base_s, self._rng = base_s, rng or random.Random()

    def count_request(self) -> None:
        """A request came."""
        self._budget.seen()

    def spend(self) -> bool:
        """Take a retry from the budget without a pause, for work that another backend takes over."""
        return self._budget.spend()

    def refund(self) -> None:
        """A retry that was paid for was not made."""
        self._budget.refund()

    def pause_s(self, error: ServiceError, remaining_s: float) -> float | None:
        """How long to wait before another try; None: there is none. Takes it from the budget."""
        pause = self._rng.uniform(0, self._base_s)
        if not error.retryable or pause >= remaining_s or not self._budget.spend():
            return None
        return pause
