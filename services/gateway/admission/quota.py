"""Quotas of a tenant: requests a second, tokens a minute, requests at once.

Admission is one synchronous step that checks all three and then takes all three, so two requests cannot both take the
last of anything, and a refused one takes nothing. The cost of an answer is not known before it is written: an estimate
is reserved, and the difference is settled afterwards. An answer that cost more leaves a debt, for which the tenant
waits.

A spoken conversation has one slot until it ends; its turns are requests and cost tokens, but have no slots.

Where Redis shares a quota between processes (`shared_quotas.py`), these accounts follow its decisions (`book`), and
decide themselves (`reserve`) while Redis is down.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

from services.runtime.deadline import Clock, set_within
from services.runtime.errors import Exhausted
from services.runtime.policy.bucket import TokenBucket

Quota = Literal["concurrency", "requests", "tokens"]
_MOST_IDLE = 10_000  # accounts; the edge may prove any number of names, because a tenant needs no settings
_EXAMINED = 2  # of the oldest accounts, for each new one beyond `_MOST_IDLE`
NOW_S = 1e-6  # shorter waits are none: a rounding error refuses no caller that waited as told


class QuotaExceeded(Exhausted):
    """A quota of the tenant is exceeded."""

    reason = "QUOTA_EXCEEDED"


@dataclass(frozen=True, slots=True)
class Allowance:
    """A tenant's limits. 0: no limit. `tokens_per_minute` is also the most tokens at once."""

    requests_per_s: float = 0.0
    requests_burst: float = 10.0
    tokens_per_minute: float = 0.0
    concurrency: int = 0

    @property
    def limited(self) -> bool:
        return bool(self.requests_per_s or self.tokens_per_minute or self.concurrency)


class Claim(NamedTuple):
    """The requests and slots of an admission beside its tokens. All are taken, or none."""

    requests: int
    slots: int  # of the tenant's concurrency


REQUEST, CONVERSATION, TURN, NO_CLAIM = Claim(1, 1), Claim(0, 1), Claim(1, 0), Claim(0, 0)


@dataclass(slots=True)
class _Account:
    """The state of a tenant's quotas."""

    allowance: Allowance = Allowance()
    requests: TokenBucket | None = None
    tokens: TokenBucket | None = None
    in_flight: int = 0
    reserved: int = 0  # how many reservations are not settled, those without a slot included
    waiting: list[asyncio.Event] = field(default_factory=list)  # for a request to end

    @property
    def idle(self) -> bool:
        """Whether a new account would have the same state."""
        buckets = filter(None, (self.requests, self.tokens))
        return not (self.reserved or self.waiting) and all(bucket.level() >= bucket.burst for bucket in buckets)


class Reservation:
    """The reservation of an admitted request. It holds its slot until it is settled, which counts once.

    `on_settled` gets the reserved tokens less the cost. `local_reason` says why this process decided without Redis;
    empty if it asked Redis, or has none.
    """

    __slots__ = ("_account", "_bucket", "_on_settled", "_slots", "_tokens", "local_reason")

    def __init__(
        self,
        account: _Account,
        tokens: int,
        slots: int,
        on_settled: Callable[[int], None] | None = None,
        local_reason: str = "",
    ):
        self._account: _Account | None = account
        self._bucket, self._tokens, self._slots = account.tokens, tokens, slots
        self._on_settled, self.local_reason = on_settled, local_reason
        account.in_flight += slots
        account.reserved += 1

    def settle(self, tokens: int) -> None:
        """End the reservation: free its slot and book the difference between estimate and cost (`tokens`)."""
        account, self._account = self._account, None
        if account is None:
            return
        account.in_flight -= self._slots
        account.reserved -= 1
        for news in account.waiting:
            news.set()
        if self._on_settled is not None:
            self._on_settled(self._tokens - tokens)
        if self._bucket is None or tokens == self._tokens:
            return
        if tokens > self._tokens:
            self._bucket.force(tokens - self._tokens)
        else:
            self._bucket.put(self._tokens - tokens)

    def release(self) -> None:
        """Settle at the estimate, unless it was settled before."""
        self.settle(self._tokens)


class JointReservation:
    """One reservation for several answers, which is settled at the cost of all of them."""

    __slots__ = ("_cost", "_whole", "local_reason")

    def __init__(self, whole: Reservation):
        self._whole, self._cost, self.local_reason = whole, 0, whole.local_reason

    def settle(self, tokens: int) -> None:
        """Add the cost of an answer that has ended."""
        self._cost += tokens

    def end(self) -> None:
        """Settle the reservation: all answers have ended, or will never begin."""
        self._whole.settle(self._cost)


class Quotas:
    """The accounts of all tenants."""

    def __init__(self, clock: Clock = time.monotonic, retry_after_s: float = 1.0):
        """`retry_after_s`: the retry delay of a refusal for concurrency; when a request will end is not known."""
        self._clock, self._retry_after_s = clock, retry_after_s
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def reserve(
        self,
        tenant: str,
        allowance: Allowance,
        tokens: int,
        claim: Claim = REQUEST,
        on_settled: Callable[[int], None] | None = None,
        local_reason: str = "",
    ) -> Reservation:
        """Admit a `claim` of about `tokens` tokens; raises `QuotaExceeded`. `on_settled`, `local_reason`: see
        `Reservation`.

        A request for more than a minute's tokens is admitted when all of a minute's are left, and leaves a debt.
        """
        account = self._account(tenant, allowance)
        if claim.slots and 0 < allowance.concurrency < account.in_flight + claim.slots:
            raise refusal(tenant, allowance, "concurrency", self._retry_after_s, account.in_flight, tokens, claim)
        if account.requests and (wait_s := account.requests.wait_s(claim.requests)) > NOW_S:
            raise refusal(tenant, allowance, "requests", wait_s, 0, tokens, claim)
        if account.tokens and (wait_s := account.tokens.wait_s(min(tokens, allowance.tokens_per_minute))) > NOW_S:
            raise refusal(tenant, allowance, "tokens", wait_s, account.tokens.level(), tokens)
        return _booked(account, tokens, claim, on_settled, local_reason)

    def expect(self, tenant: str, allowance: Allowance, claim: Claim) -> Reservation:
        """Reserve a `claim` for a request that is still being read. Raises `QuotaExceeded`, also if the tenant has no
        further request left, which is charged later."""
        account = self._account(tenant, allowance)
        if account.requests and (wait_s := account.requests.wait_s(1)) > NOW_S:
            raise refusal(tenant, allowance, "requests", wait_s, 0, 0)
        return self.reserve(tenant, allowance, 0, claim)

    def book(
        self, tenant: str, allowance: Allowance, tokens: int, claim: Claim, on_settled: Callable[[int], None]
    ) -> Reservation:
        """Account for a request that Redis has admitted, even beyond the quota as known here."""
        return _booked(self._account(tenant, allowance), tokens, claim, on_settled)

    async def ended(self, tenant: str, within_s: float) -> None:
        """Return when a request of `tenant` has ended here, or after `within_s`. The longest waiter is woken first."""
        account = self._get_or_add(tenant)
        account.waiting.append(news := asyncio.Event())
        try:
            await set_within(news, within_s)
        finally:
            account.waiting.remove(news)

    def _account(self, tenant: str, allowance: Allowance) -> _Account:
        account = self._get_or_add(tenant)
        if account.allowance != allowance:
            account.allowance = allowance
            per_s, per_minute = allowance.requests_per_s, allowance.tokens_per_minute
            account.requests = self._adapted(account.requests, per_s, allowance.requests_burst)
            account.tokens = self._adapted(account.tokens, per_minute / 60, per_minute)
        return account

    def _get_or_add(self, tenant: str) -> _Account:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= _MOST_IDLE:
                self._forget_idle()
            account = self._accounts[tenant] = _Account()
        return account

    def _forget_idle(self) -> None:
        """Remove idle ones of the oldest accounts; the others become the newest."""
        for tenant in list(islice(self._accounts, _EXAMINED)):
            if self._accounts[tenant].idle:
                del self._accounts[tenant]
            else:
                self._accounts.move_to_end(tenant)

    def _adapted(self, bucket: TokenBucket | None, rate_per_s: float, burst: float) -> TokenBucket | None:
        """The bucket at a new rate, with its level, so that a reload of settings gives no tokens. The time since the
        last request counts at the old rate, and towards the new burst."""
        if not rate_per_s:
            return None
        if bucket is None:
            return TokenBucket(rate_per_s, burst, self._clock)
        bucket.burst, bucket.rate_per_s = burst, rate_per_s
        return bucket


def _booked(
    account: _Account,
    tokens: int,
    claim: Claim,
    on_settled: Callable[[int], None] | None = None,
    local_reason: str = "",
) -> Reservation:
    if account.requests and claim.requests:
        account.requests.force(claim.requests)
    if account.tokens and tokens:
        account.tokens.force(tokens)
    return Reservation(account, tokens, claim.slots, on_settled, local_reason)


def refusal(
    tenant: str,
    allowance: Allowance,
    quota: Quota,
    retry_delay_s: float,
    left: float,
    tokens: int,
    claim: Claim = REQUEST,
) -> QuotaExceeded:
    """The error of a request for `tokens` tokens beyond `quota`. `left`: the tokens left, negative for a debt of
    earlier answers; for `concurrency` the requests in flight."""
    metadata: dict[str, str] = {"quota": quota}
    match quota:
        case "concurrency":
            more = f", {claim.slots} needed" if claim.slots > 1 else ""
            text = f"{left:.0f} of {allowance.concurrency} requests at once{more}"
            metadata |= {"limit": f"{allowance.concurrency}", "value": f"{left + claim.slots:.0f}"}
        case "requests":
            more = f", {claim.requests} needed together" if claim.requests > 1 else ""
            text = f"{allowance.requests_per_s:g} requests a second{more}"
            metadata |= {"limit": f"{allowance.requests_per_s:g}", "burst": f"{allowance.requests_burst:g}"}
        case "tokens":
            limit = f"{allowance.tokens_per_minute:g}"
            owed = f" and {math.ceil(-left)} owed" if left <= -1 else ""
            text = f"{max(left, 0):.0f} of {limit} tokens a minute left{owed}, {tokens} needed"
            metadata |= {"limit": limit, "value": f"{tokens}", "left": f"{math.floor(left)}"}
    again = "" if quota == "concurrency" else f"; retry in {retry_delay_s:.1f} s"  # no clock knows when a request ends
    return QuotaExceeded(f"tenant {tenant}: {text}{again}", retry_delay_s=retry_delay_s, **metadata)
