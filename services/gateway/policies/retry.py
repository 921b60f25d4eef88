"""The budget of retries, and the pause before a retry.

Retried are calls that failed before any effect, with UNAVAILABLE or another `retryable` error, in one layer above the
failure alone, and never past the deadline.
A call that was throttled is repeated without a pause, and at another backend alone: the breaker keeps calls from the
first one for as long as its `retry-after` says.
The budget is a share of the requests, as in Finagle's `RetryBudget` and Envoy's `retry_budget` (both 20%): if all calls
fail, retries add a fifth to the load and not a multiple. The budget starts with its burst, so that calls shortly after
a start can be retried too. A tenant spends no more of it than its own requests have earned, and the burst: so one
tenant's failures leave to the others the retries that their requests earn.

The pause before a retry is random ("full jitter",
https://aws.amazon.com/builders-library/timeouts-retries-and-backoff-with-jitter/), so that callers that failed together
do not retry together.
"""

from __future__ import annotations

import random
from functools import partial

from cachetools import LRUCache

from services.runtime.errors import ServiceError
from services.runtime.policy.bucket import ExtraBudget

_TENANTS = 4_096  # beyond it the one that was not seen for longest begins again


class RetryBudget:
    """The retries of a process: a `share` of its requests, and `burst` after a start; of a tenant, the same of its own.
    A `share` of 0 turns retries off. A pause is random, at most `base_s` seconds. A process that knows no tenants has
    one, whose name is empty."""

    def __init__(self, share: float, burst: float, base_s: float, rng: random.Random | None = None):
        self._make = partial(ExtraBudget, share, burst, start=burst if share else 0.0)
        self._budget, self._own = self._make(), LRUCache[str, ExtraBudget](_TENANTS)
        self._base_s, self._rng = base_s, rng or random.Random()

    def count_request(self, tenant: str = "") -> None:
        """Add a request's share to the budget."""
        for budget in self._budgets(tenant):
            budget.seen()

    def ready(self, tenant: str = "") -> bool:
        """Whether the budget has a retry."""
        return all(budget.ready for budget in self._budgets(tenant))

    def spend(self, tenant: str = "") -> bool:
        """Take a retry from the budget without a pause, for a call that another backend takes over. False: the budget
        is used up."""
        return self.ready(tenant) and all(budget.spend() for budget in self._budgets(tenant))

    def refund(self, tenant: str = "") -> None:
        """Return the cost of a retry that was not made."""
        for budget in self._budgets(tenant):
            budget.refund()

    def pause_s(self, error: ServiceError, remaining_s: float, tenant: str = "") -> float | None:
        """The pause before a retry, in seconds, which is then taken from the budget; None: no retry."""
        pause = self._rng.uniform(0, self._base_s)
        if not error.retryable or pause >= remaining_s or not self.spend(tenant):
            return None
        return pause

    def _budgets(self, tenant: str) -> tuple[ExtraBudget, ExtraBudget]:
        """That of all tenants, and that of this one."""
        if tenant not in self._own:
            self._own[tenant] = self._make()
        return self._budget, self._own[tenant]
