"""Which tenants' calls are refused while the process is under pressure: those of the tenant that causes it first.

Each tenant has an account of the CPU time that its calls have cost lately, as estimated by their caller from the number
and size of requests and the pieces of answers. A tenant's *share* is its account over its fair part of all accounts, by
weight, among the tenants that have called lately: 1 for a tenant alone.

Under pressure tenants with a share of 1 or more are refused. That bar halves with each second for which the pressure
stays, down to an eighth. Tenants below an eighth are never refused: all of them together have less than an eighth of
the work, so to refuse them would not end the pressure.

Without pressure of the process's own, its event loop may still be late, because other processes take the CPU. To refuse
usual calls would not end that. Only large requests of tenants above their fair share are refused, because each of them
delays the others; a tenant alone has its requests read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from services.runtime.deadline import Clock

_KEPT = 0.8  # of an account from one second to the next: after 10 s a tenth is left
_LEAST_S = 0.0001  # an account with less is closed
_LOWEST_BAR = 0.125
_OVER = 1.01  # a share that is not 1 by rounding alone


@dataclass(slots=True)
class _Account:
    seconds: float
    weight: float


class WorkShares:
    """`pressure` is the load of the process, where 1 is all it can bear; from `limit` on, calls are refused. `lag`: the
    same by a lag that other processes cause; None: there are none."""

    def __init__(
        self,
        pressure: Callable[[], float],
        limit: float,
        clock: Clock = time.monotonic,
        lag: Callable[[], float] | None = None,
    ):
        self.pressure, self._lag, self._limit, self._clock = pressure, lag or pressure, limit, clock
        self._accounts: dict[str, _Account] = {}
        self._aged_at = clock()
        self._pressed_since: float | None = None

    def spend(self, tenant: str, weight: float, seconds: float) -> None:
        """Note that calls of the tenant have cost about so many seconds of CPU time."""
        if self._clock() - self._aged_at >= 1:
            self._age()
        if account := self._accounts.get(tenant):
            account.seconds += seconds
            account.weight = weight  # which a reload of the tenants may have changed
        else:
            self._accounts[tenant] = _Account(seconds, weight)

    def share(self, tenant: str) -> float:
        """The tenant's work over its fair part of all work; 0 for a tenant that has not called lately."""
        self._age()
        account, all_accounts = self._accounts.get(tenant), self._accounts.values()
        if account is None:
            return 0.0
        fair_s = sum(each.seconds for each in all_accounts) / sum(each.weight for each in all_accounts)
        return account.seconds / account.weight / fair_s

    def refusal(self, tenant: str) -> str:
        """Why a call of low priority of the tenant's is refused now; empty where it is not."""
        pressure, now = self.pressure(), self._clock()
        if pressure < self._limit:
            self._pressed_since = None
            return ""
        if self._pressed_since is None:
            self._pressed_since = now
        bar = max(0.5 ** int(now - self._pressed_since), _LOWEST_BAR)
        share = self.share(tenant)
        return _reason(pressure, share) if share >= min(bar, 1 / _OVER) else ""

    def refusal_unread(self, tenant: str) -> str:
        """Why a large request of the tenant's is refused before it is read; empty where it is not."""
        pressure = max(self._lag(), self.pressure())
        if pressure < self._limit or (share := self.share(tenant)) < _OVER:
            return ""
        return _reason(pressure, share)

    def _age(self) -> None:
        steps = int(self._clock() - self._aged_at)
        if steps < 1:
            return
        self._aged_at += steps
        for account in self._accounts.values():
            account.seconds *= _KEPT**steps
        self._accounts = {name: each for name, each in self._accounts.items() if each.seconds >= _LEAST_S}


def _reason(pressure: float, share: float) -> str:
    return f"a pressure of {pressure:.2f}, and the tenant has {share:.2f} times its fair share of the recent work"
