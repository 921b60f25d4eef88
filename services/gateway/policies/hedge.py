"""Hedging: a second call if the first text is late; the first text wins and the other call is cancelled.

J. Dean and L. A. Barroso, "The Tail at Scale", CACM 56(2), 2013 (https://doi.org/10.1145/2408776.2408794): a second
call after the 95th percentile costs 5% more calls and removes most of the tail latency. There are three modes:

- `adaptive`: after a percentile of the model's recent first-token times; with few recent ones, of those of a longer
  time; with few of these too, after the expected first-token time. Requests that need no model (cache hits) earn budget
  too; it is spent on earlier hedges, at the percentile that uses the budget up.
- `fixed`: after a fixed delay, to race two providers.
- `tied`: at once, while there is budget. (In the paper, the servers of tied calls cancel the other call in their
  queues. Servers here do not know each other, so the gateway cancels the slower call at the first text.)

`race.py` runs the race of the two calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from prometheus_client import Counter

from services.gateway.policies.baseline import LatencyBaseline
from services.runtime.deadline import Clock, set_within
from services.runtime.digest import WindowedDigest
from services.runtime.line_limit import LineLimit
from services.runtime.policy.bucket import ExtraBudget
from services.runtime.policy.fair import FairQueue, Rank
from services.runtime.shared_state import PREFIX, SharedState, SharedStateLost

if TYPE_CHECKING:
    from redis.asyncio import Redis

Mode = Literal["adaptive", "fixed", "tied", "off"]
_MEMORY = 1 - 1 / 1_000  # decay of the ratio of requests to calls: 1,000 requests
_LOOK_EVERY_S = 0.05  # between two computations of the percentile
_SOONEST = 0.5  # lowest percentile: hedging the faster half of calls gains nothing
EVERY_S = 0.1
_KEY = f"{PREFIX}hedges"
_FORGOTTEN_MS = 3_600_000  # lifetime of an unused pool
_log, _lines = logging.getLogger(__name__), LineLimit()

# KEYS: the pool. ARGV: amount put in, amount wanted, limit of the pool, its lifetime. Returns the amount taken.
_EXCHANGE = """
local pool = math.min(ARGV[3], (redis.call('GET', KEYS[1]) or 0) + ARGV[1])
local taken = math.min(pool, ARGV[2])
redis.call('SET', KEYS[1], string.format('%.17g', pool - taken), 'PX', ARGV[4])
return string.format('%.17g', taken)
"""
_EXCHANGED = Counter(
    "hedgerow_hedges_exchanged", "Hedges put into the gateways' shared budget, and taken from it.", ["direction"]
)


class WaitingRace(Protocol):
    """A race that waits until the budget can pay for a second call."""

    def set(self) -> None:
        """Wake the race: the budget may have a second call for it."""
        ...


@dataclass(eq=False, slots=True)
class _Queued:
    """A race in the queue. Of a tenant's, the one with the highest rank is next: the longest wait."""

    race: WaitingRace
    tenant: str
    weight: float
    rank: Rank


class HedgeBudget:
    """The budget of a process for second calls: `share` of its requests, also of those that need no model.

    A race that finds the budget empty is queued. Tenants take turns, and a tenant's longest wait is served first: most
    requests that are a little late end while they wait, so the budget goes to the slowest.

    Processes that share one budget `draw` what they do not need and `put` in what others saved. `wanting` is set when a
    race is queued.
    """

    def __init__(self, share: float, burst: float):
        self.burst, self.wanting = burst, asyncio.Event()
        self._budget, self._share = ExtraBudget(share, burst), share
        self._requests = self._calls = 0.0
        self._queue, self._queued = FairQueue[_Queued](), dict[WaitingRace, _Queued]()
        self._numbers = count()
        self._waking = False

    def count_request(self) -> None:
        """Count a request; it may be answered without a call."""
        self._budget.seen()
        self._requests = self._requests * _MEMORY + 1
        self._calls *= _MEMORY
        self._wake_next()

    def count_call(self) -> None:
        """Count a request that needs a call."""
        self._calls += 1

    def spend(self, race: WaitingRace, tenant: str = "", weight: float = 1.0) -> bool:
        """Take a second call of the tenant's from the budget. False: the race is queued, and `set` when the budget
        allows its call, unless it leaves the queue before."""
        if not (queued := self._queued.get(race)):
            self._queued[race] = queued = _Queued(race, tenant, weight, (0.0, -next(self._numbers)))
            self._queue.add(queued)
        if self._queue.best() is queued and self._budget.spend():
            self._queue.take(queued)
            del self._queued[race]
            self._wake_next()
            return True
        self.wanting.set()
        return False

    def dequeue(self, race: WaitingRace) -> None:
        """Remove the race from the queue: it needs no second call any more."""
        if queued := self._queued.pop(race, None):
            self._queue.remove(queued)
            self._wake_next()

    def refund(self) -> None:
        """Return the cost of a second call that was not made."""
        self._budget.refund()
        self._wake_next()

    def missing(self) -> float:
        """How many second calls this process lacks: those of the queue, or one in advance."""
        return max(0.0, max(1, len(self._queue)) - self._budget.level)

    def draw(self) -> float:
        """Take the unneeded budget out, and return it."""
        return 0.0 if self._queue else self._budget.draw(keep=1)

    def put(self, amount: float) -> None:
        """Add budget that other processes saved."""
        self._budget.put(amount)
        self._wake_next()

    def share_of_calls(self) -> float:
        """The share of calls that the budget can hedge, 0 to 1."""
        return min(1.0, self._share * max(1.0, self._requests / self._calls)) if self._calls else self._share

    def _wake_next(self) -> None:
        """Wake the first race in the queue, and the next one after it has left the queue or spent a call. A woken race
        calls this method again, inside `set`; such a call returns at once, because a long queue would exceed the
        stack."""
        if self._waking:
            return
        self._waking, woken = True, None
        try:
            while self._budget.ready and (first := self._queue.best()) and first is not woken:
                woken = first
                first.race.set()
        finally:
            self._waking = False


@dataclass(frozen=True, slots=True)
class HedgeRule:
    """When to hedge. `percentile`, 0 to 100, is the latest one in `adaptive` mode, which uses the last `window_s`
    seconds if they have `min_samples` first-token times."""

    mode: Mode = "adaptive"
    percentile: float = 95
    delay_s: float = 0.15
    min_samples: int = 100
    window_s: float = 60


@dataclass(frozen=True, slots=True)
class HedgeMoment:
    """When to hedge a call: after `after_s` seconds without text. `basis`: the reason for this delay, for people."""

    after_s: float
    basis: str


class Hedge:
    """The hedge delay of one model. `baseline`: first-token times of a longer time."""

    def __init__(self, rule: HedgeRule, budget: HedgeBudget, baseline: LatencyBaseline, clock: Clock = time.monotonic):
        self._rule, self.budget, self._baseline, self._clock = rule, budget, baseline, clock
        self._computed_at = float("-inf")
        self._moment = HedgeMoment(baseline.expected_s, "the expected first-token time")
        self._firsts = WindowedDigest(rule.window_s, clock)

    def add_first_text(self, first_s: float) -> None:
        self._firsts.add(first_s)

    def add_unanswered(self, after_s: float) -> bool:
        """Add a call that ended before its first text, by its deadline or because another was faster: its first-token
        time is longer than `after_s`. It counts if this is above the median, because otherwise slow calls would be
        missing from the percentiles. Returns whether it counts."""
        usual = self._firsts.quantile(0.5)
        counts = usual is None or after_s >= usual
        if counts:
            self._firsts.add(after_s)
        return counts

    def moment(self) -> HedgeMoment | None:
        """The moment of a second call; None: no second call."""
        match self._rule.mode:
            case "off":
                return None
            case "tied":
                return HedgeMoment(0.0, "at once")
            case "fixed":
                return HedgeMoment(self._rule.delay_s, "the fixed delay")
        now = self._clock()
        if now >= self._computed_at + _LOOK_EVERY_S:
            self._computed_at, self._moment = now, self._adaptive()
        return self._moment

    def _adaptive(self) -> HedgeMoment:
        quantile = min(self._rule.percentile / 100, 1 - self.budget.share_of_calls())
        quantile = round(max(quantile, _SOONEST), 2)
        percentile = f"the {quantile * 100:.0f}th percentile"
        if self._firsts.count >= self._rule.min_samples and (moment_s := self._firsts.quantile(quantile)) is not None:
            return HedgeMoment(moment_s, f"{percentile} of the last {self._rule.window_s:g} s")
        if (moment_s := self._baseline.quantile_s(quantile)) is not None:
            return HedgeMoment(moment_s, f"{percentile} of the last ten minutes")
        return HedgeMoment(self._baseline.expected_s, "the expected first-token time")


class HedgePool:
    """This gateway's part of a hedge budget that all gateways share, on Redis. `run()` must be running.

    Each gateway earns its share of a second call with each request, and spends it without asking Redis. Unneeded budget
    goes into a pool; a gateway with too little takes from the pool, at once when a call waits. No amount counts twice:
    an amount in transit is lost when Redis or a gateway dies, so the second calls of all gateways never exceed the
    share of all requests. While Redis is down each gateway spends only what it earned itself.
    """

    def __init__(self, state: SharedState, budget: HedgeBudget, every_s: float = EVERY_S):
        self._state, self._budget, self._every_s = state, budget, every_s

    async def run(self) -> None:
        """Exchange budget with the pool. Runs until cancelled."""
        while True:
            await set_within(self._budget.wanting, self._every_s)
            self._budget.wanting.clear()
            with suppress(SharedStateLost):
                await self._exchange()
            if self._budget.missing():  # the pool is empty: wait before the next exchange
                await asyncio.sleep(self._every_s)

    async def _exchange(self) -> None:
        if not self._state.up:
            return
        given, wanted = self._budget.draw(), self._budget.missing()
        if not (given or wanted):
            return
        taken = await self._state.ask(partial(_exchange, given=given, wanted=wanted, most=self._budget.burst))
        if taken is None:
            self._budget.put(given)
            return
        self._budget.put(taken)
        _EXCHANGED.labels("given").inc(given)
        _EXCHANGED.labels("taken").inc(taken)


async def _exchange(client: Redis, given: float, wanted: float, most: float) -> float | None:
    """The amount taken; None where Redis refuses to write, as one that is full."""
    from redis.exceptions import ResponseError

    try:
        return float(await cast(Any, client).eval(_EXCHANGE, 1, _KEY, given, wanted, most, _FORGOTTEN_MS))
    except ResponseError as refusal:
        if (left_out := _lines.take()) is not None:
            _log.warning("Redis refused hedges, and %d times before since the last line: %s", left_out, refusal)
        return None
