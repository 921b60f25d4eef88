"""Quotas of all gateways together, on Redis; this process's own (`quota.py`) while Redis is down.

One task sends everything to Redis, in one pipeline at a time; requests that come meanwhile go with the next pipeline.
So many requests cost few round trips, a cancelled request closes no connection, and the renewal of a lease never
overtakes its end.

A slot is a lease, which this process renews while the request runs: those of a gateway that was killed expire.
Every request is in this process's own accounts too, whichever process admitted it. So while Redis is down, they know
the requests in flight and the tokens used here; when it returns, requests admitted meanwhile get their leases.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import Histogram

from services.gateway.admission.quota import NOW_S, REQUEST, Allowance, Claim, Quota, Quotas, Reservation, refusal
from services.gateway.admission.quota_scripts import RENEW, RESERVE, SETTLE
from services.runtime.deadline import Clock, set_within
from services.runtime.line_limit import LineLimit
from services.runtime.shared_state import PREFIX, SharedState, SharedStateLost, is_refused

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = logging.getLogger(__name__)
_RENEWALS = 3  # in a lease: one or two may fail
_ASKED_SECONDS = Histogram(
    "hedgerow_quota_asked_seconds",
    "Time Redis took to decide on the requests of one pipeline.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
)
_SHA = {script: hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest() for script in (RESERVE, SETTLE, RENEW)}


@dataclass(frozen=True, slots=True)
class _LeaseGroup:
    """A group of requests that are counted together, for each tenant: those that hold slots, or those that do not."""

    tenant: str
    slots: int

    def keys(self) -> tuple[str, str]:
        """The tenant's buckets and these leases, in one slot of a cluster."""
        buckets = f"{PREFIX}quota:{{{self.tenant}}}"
        return buckets, f"{buckets}:{'leases' if self.slots else 'turns'}"


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """A request that waits for Redis' decision. `ids`: one for each slot, the first of which has the tokens.
    `reply`: the reply of `RESERVE`."""

    ids: tuple[str, ...]
    group: _LeaseGroup
    allowance: Allowance
    tokens: int
    requests: int
    reply: asyncio.Future[Sequence[bytes]] = field(default_factory=asyncio.Future)


@dataclass(frozen=True, slots=True)
class _End:
    """A request that has ended: how many of its tokens are left unused, and when that was known. `unleased`: they count
    also where it has no lease, because this process admitted it alone."""

    unused: int
    at: float
    unleased: bool = False


class SharedQuotas:
    """The accounts of all tenants with limits. `run()` must be running."""

    def __init__(self, state: SharedState, lease_s: float, retry_after_s: float = 1.0, clock: Clock = time.monotonic):
        """A slot that is not renewed for `lease_s` is free again. `retry_after_s`: see `Quotas`."""
        self.local = Quotas(clock, retry_after_s)
        self._state, self._lease_s, self._retry_after_s, self._clock = state, lease_s, retry_after_s, clock
        self._process, self._numbers = secrets.token_hex(8), count()
        self._allowances: dict[str, Allowance] = {}
        self._running: dict[str, _LeaseGroup] = {}  # by id
        self._asks: list[_Ask] = []
        self._ends: dict[_LeaseGroup, dict[str, _End]] = {}  # by id
        self._work, self._renew_at, self._lines = asyncio.Event(), 0.0, LineLimit()
        state.on_return(self._restart)

    async def reserve(
        self, tenant: str, allowance: Allowance, tokens: int, within_s: float, claim: Claim = REQUEST
    ) -> Reservation:
        """Admit a `claim` of about `tokens` tokens; raises `QuotaExceeded`. When Redis has not decided `within_s`,
        this process does, and the reservation says why (`local_reason`)."""
        self._allowances[tenant] = allowance
        group = _LeaseGroup(tenant, min(claim.slots, 1))
        ask = _Ask(self._new_ids(claim), group, allowance, tokens, claim.requests)
        try:
            quota, wait_s, left = await self._decision(ask, within_s)
        except SharedStateLost as problem:
            return self._reserve_alone(group, allowance, tokens, claim, str(problem))
        else:
            if quota:
                name = cast(Quota, quota.decode())
                wait = self._retry_after_s if name == "concurrency" else float(wait_s)
                raise refusal(tenant, allowance, name, wait, float(left), tokens, claim)
            self._running |= dict.fromkeys(ask.ids, group)
            return self.local.book(tenant, allowance, tokens, claim, partial(self._end, group, ask.ids))

    def _reserve_alone(
        self, group: _LeaseGroup, allowance: Allowance, tokens: int, claim: Claim, why: str
    ) -> Reservation:
        """Reserve without Redis. Its buckets have paid nothing, so the request's whole cost is booked there at its
        end."""
        own_ids = self._new_ids(claim)  # it is not known what Redis did with the first
        reservation = self.local.reserve(
            group.tenant,
            allowance,
            tokens,
            claim,
            lambda unused: self._end(group, own_ids, unused - tokens, unleased=True),
            local_reason=why,
        )
        self._running |= dict.fromkeys(own_ids, group)
        return reservation

    def _new_ids(self, claim: Claim) -> tuple[str, ...]:
        return tuple(f"{self._process}-{next(self._numbers)}" for _ in range(max(claim.slots, 1)))

    async def run(self) -> None:
        """Carry everything to Redis until cancelled; and then what has ended, so that its slots are free at once."""
        try:
            while True:
                await set_within(self._work, self._renew_at - self._clock())
                self._work.clear()
                with suppress(SharedStateLost):
                    await self._exchange()
        finally:
            with suppress(SharedStateLost):
                await self._exchange()

    async def _decision(self, ask: _Ask, within_s: float) -> Sequence[bytes]:
        if not self._state.up:
            raise SharedStateLost("Redis does not answer")
        self._asks.append(ask)
        self._work.set()
        try:
            async with asyncio.timeout(within_s):
                return await ask.reply
        except TimeoutError:
            self._withdraw(ask)
            raise SharedStateLost(f"Redis: no answer within {within_s * 1000:.0f} ms") from None
        except asyncio.CancelledError:
            self._withdraw(ask)
            raise

    def _withdraw(self, ask: _Ask) -> None:
        """The request no longer waits. A grant that it has not seen ends now; a grant that comes later ends then."""
        if ask.reply.cancelled() or not ask.reply.done():
            return
        if ask.reply.exception() is None and not ask.reply.result()[0]:
            self._end(ask.group, ask.ids, ask.tokens)

    def _end(self, group: _LeaseGroup, ids: tuple[str, ...], unused: int, *, unleased: bool = False) -> None:
        """A request has ended with `unused` of its tokens left."""
        for each in ids:
            self._running.pop(each, None)
        self._ends.setdefault(group, {}).update(self._ends_of(ids, unused, unleased=unleased))
        if self._state.up:
            self._work.set()

    def _ends_of(self, ids: tuple[str, ...], unused: int, *, unleased: bool = False) -> dict[str, _End]:
        return {each: _End(unused if each == ids[0] else 0, self._clock(), unleased) for each in ids}

    async def _exchange(self) -> None:
        """Send Redis everything that waits. Raises `SharedStateLost`; ended requests then wait for the next time."""
        asks, self._asks = self._asks, []
        ends, self._ends = self._ends, {}
        running = self._due()
        if not (asks or ends or running):
            return
        began, sent = self._clock(), self._state.up
        try:
            replies_to_asks = await self._state.ask(partial(self._send, asks=asks, ends=ends, running=running))
        except BaseException:  # also when cancelled: what is under way is not lost
            self._restore(asks, ends, sent=sent)
            raise
        if asks:
            _ASKED_SECONDS.observe(self._clock() - began)
        for ask, reply in zip(asks, replies_to_asks, strict=True):
            if isinstance(reply, Exception):
                self._refused(ask, reply)
            elif not ask.reply.done():
                ask.reply.set_result(reply)
            elif not reply[0]:  # its request has left, and holds a slot
                self._end(ask.group, ask.ids, ask.tokens)

    async def _send(
        self,
        client: Redis,
        asks: Sequence[_Ask],
        ends: Mapping[_LeaseGroup, Mapping[str, _End]],
        running: Mapping[_LeaseGroup, list[str]],
    ) -> Sequence[Sequence[bytes] | Exception]:
        """What has ended first: its slots may be what the others ask for. Returns an error where Redis refuses one."""
        pipeline: Any = client.pipeline(transaction=False)
        for group, ended in ends.items():
            per_minute = self._allowances[group.tenant].tokens_per_minute
            each = [part for request_id, end in ended.items() for part in (request_id, end.unused, int(end.unleased))]
            pipeline.evalsha(_SHA[SETTLE], 2, *group.keys(), per_minute / 60, per_minute, *each)
        for group, ids in running.items():
            pipeline.evalsha(_SHA[RENEW], 1, group.keys()[1], self._lease_s, *ids)
        for ask in asks:
            pipeline.evalsha(_SHA[RESERVE], 2, *ask.group.keys(), ask.ids[0], self._lease_s, ask.tokens, *_limits(ask))
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        for reply in replies:
            is_refused(reply)
        return replies[len(replies) - len(asks) :]

    def _refused(self, ask: _Ask, error: Exception) -> None:
        """Redis does not decide on this request, and answers others: this process decides."""
        if (left_out := self._lines.take()) is not None:
            text = "Redis refused to decide on a request, and %d before since the last line: %s"
            _log.warning(text, left_out, error)
        if not ask.reply.done():
            ask.reply.set_exception(SharedStateLost("Redis refuses the change"))

    def _due(self) -> Mapping[_LeaseGroup, list[str]]:
        """The requests whose leases are to be renewed now."""
        due: dict[_LeaseGroup, list[str]] = {}
        if self._clock() >= self._renew_at:
            self._renew_at = self._clock() + self._lease_s / _RENEWALS
            for request_id, group in self._running.items():
                due.setdefault(group, []).append(request_id)
        return due

    def _restore(self, asks: Sequence[_Ask], ends: Mapping[_LeaseGroup, Mapping[str, _End]], *, sent: bool) -> None:
        """It is not known what Redis did: the waiting requests get an error, and the slots that they may hold are
        given back. A request that ended longer ago than a lease holds no slot any more. Once `sent`, only a lease
        shows that its tokens have not been counted."""
        for ask in asks:
            if not ask.reply.done():
                ask.reply.set_exception(SharedStateLost("Redis does not answer"))
            self._ends.setdefault(ask.group, {}).update(self._ends_of(ask.ids, ask.tokens))
        oldest = self._clock() - self._lease_s
        for group, ended in ends.items():
            kept = {
                request_id: replace(end, unleased=end.unleased and not sent)
                for request_id, end in ended.items()
                if end.at > oldest
            }
            if kept:
                self._ends[group] = kept | self._ends.get(group, {})

    async def _restart(self) -> None:
        """Redis answers, and may have forgotten everything."""
        for script in _SHA:
            await self._state.try_to(partial(_load, script=script))
        self._renew_at = 0.0
        self._work.set()


async def _load(client: Redis, script: str) -> object:
    return await cast(Any, client).script_load(script)


def _limits(ask: _Ask) -> tuple[float | str, ...]:
    allowance = ask.allowance
    per_minute = allowance.tokens_per_minute
    requests = (allowance.requests_per_s, allowance.requests_burst)
    slots = allowance.concurrency if ask.group.slots else 0
    return (*requests, per_minute / 60, per_minute, slots, NOW_S, ask.requests, *ask.ids[1:])
