"""A limiter: which requests get a slot at a backend, which wait for one, and which are refused.

Several tenants share a limiter by weight. A tenant is *within its share* while others ask too and it has, waiting
requests included, fewer slots than its weight is worth. Requests within a share go first, whatever their class: so a
flood of one tenant cannot take the slots of another, and cannot by a high priority either.

In this order, for each request:

1. From a load of `shed_load` on, and while requests of higher priority are refused, low scores that are not within
   their tenant's share are refused at once; under pressure of the process, low scores of the tenants that cause it
   (`work_shares.py`). It takes microseconds, and the caller has its whole time left.
2. While a slot is free it is given at once, without a switch to another task.
3. Else the request is queued: within their share first, then by class; in a queue tenants by fair queueing, within a
   tenant the earliest deadline first.
   The calls that others hold beyond their share may be long: after 250 ms, a request within its share gets a slot
   beyond the limit. There are half as many of these as the limit; no other request gets any until enough have ended.
4. The queue is full at as many requests as will be served within the longest wait. Then a request of a later queue is
   displaced, or one of a tenant with more than others in the same queue. Otherwise the new request is refused at once.

No request waits longer than `queue_s` or past its deadline, so expired work never runs. In a queue that is overloaded,
requests beyond their share wait 5 ms (`wait_queue.py`). When the limit grows, waiters are let in; when it shrinks,
calls in flight keep their slots.

Batches are separate (`batch_admission.py`): while no request waits and the limiter is calm they take some of its
slots, more of them when no other request has come for some time. Each of them makes the backend slower for all.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import cache

from prometheus_client import Counter, Gauge, Histogram

from services.gateway.policies.batch_admission import Backlog, BatchShare
from services.gateway.policies.concurrency_limit import Limit, Sample
from services.gateway.policies.slot import CLASSES, Shed, Slot, SlotRequest, class_of
from services.gateway.policies.wait_queue import WaitingRequest, WaitQueue
from services.runtime import telemetry
from services.runtime.deadline import Clock
from services.runtime.policy.fair import Rank, Shares

_BEYOND_AFTER_S, _BEYOND_SHARE = 0.25, 0.5  # slots beyond the limit: after which wait at the most, and how many
_HOLD_SHARE = 0.05  # of the average that one call makes up
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, *telemetry.LONG_S)
_LIMIT = Gauge("hedgerow_limit", "Calls that may be in flight at once.", ["limiter"])
_IN_FLIGHT = Gauge("hedgerow_in_flight", "Calls in flight.", ["limiter"])
_WAITING = Gauge("hedgerow_waiting", "Requests that wait for a slot.", ["limiter"])
_WAIT_SECONDS = Histogram(
    "hedgerow_limiter_wait_seconds", "Wait of requests that had to wait and got a slot.", ["limiter"], buckets=_BUCKETS
)
_SHED = Counter("hedgerow_shed", "Requests that were refused.", ["limiter", "class", "why"])
_shed = cache(_SHED.labels)  # `labels` takes a lock; these have few values


class Limiter:
    """`limit` slots in front of one backend, and a queue for `queue` requests. `name` is for people and metrics."""

    def __init__(
        self,
        name: str,
        limit: Limit,
        queue: int,
        queue_s: float,
        shed_load: float = 0.85,
        shed_score: int = 50,
        retry_after_s: float = 1.0,
        clock: Clock = time.monotonic,
        rng: random.Random | None = None,
        pressure: Callable[[], float] = lambda: 0.0,
        pressure_refusal: Callable[[str], str] = lambda tenant: "",
        batches: BatchShare | None = None,
    ):
        """`pressure` is the load of the process itself, where 1 is all it can bear; `pressure_refusal` is why it
        refuses a low score of a tenant, if it does. `batches`: the slots that they may have."""
        self.name, self._rng = name, rng or random.Random()
        self._limit, self._max_waiting, self._queue_s = limit, queue, queue_s
        self._shed_load, self._shed_score, self._retry_after_s = shed_load, shed_score, retry_after_s
        self._pressure, self._pressure_refusal, self._clock = pressure, pressure_refusal, clock
        self._queues = [WaitQueue[Slot](rank, queue_s) for rank in range(2 * len(CLASSES))]
        self._shares = Shares()
        self._backlog, self._batches = Backlog[Slot](self._spare_for_batch), batches or BatchShare()
        self._in_flight = self._in_batches = self._waiting = self._arrivals = 0
        self._hold_s = 0.0  # for how long a call keeps its slot, on average
        self._wait_seconds = _WAIT_SECONDS.labels(name)
        _LIMIT.labels(name).set_function(lambda: limit.value)
        _IN_FLIGHT.labels(name).set_function(lambda: self._in_flight)
        _WAITING.labels(name).set_function(lambda: self._waiting)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def queue_capacity(self) -> float:
        """How many may wait: as many as get a slot within the longest wait (Little's law), `queue` at most."""
        served = self._queue_s * self._limit.value / self._hold_s if self._hold_s else float("inf")
        return min(self._max_waiting, served)

    def load(self, wait_share: float = 1.0) -> float:
        """Share of all slots that is taken. The queue counts by the `wait_share` of a full wait, 0 to 1, that requests
        may wait there. Above 1 after the limit shrank."""
        return (self._in_flight + self._waiting) / (self._limit.value + self.queue_capacity * wait_share)

    async def enter(self, request: SlotRequest) -> Slot:
        """A slot, at once when one is free; raises `Shed`. Cancelling it leaves nothing behind."""
        if request.on_slot:
            return await self._enter_of_batch(request, request.on_slot)
        now, queue = self._clock(), self._queue_of(request)
        self._batches.last_interactive_at = now
        wait_s = queue.wait_limit.seconds(now)
        if request.score < self._shed_score:
            self._shed_low_priority(request, queue, now)
        if self._free():
            self._shares.add(request.tenant, request.weight)
            return self._take(request.tenant, now)
        return await self._wait(request, queue, now, min(wait_s, request.deadline.remaining()))

    def has_slot(self, request: SlotRequest) -> bool:
        """Whether a request would get a slot soon: one is free, or it is within its tenant's share."""
        return request.in_background or self._free() or self._queue_of(request).within_share

    def spare(self) -> Slot | None:
        """A slot for an extra call, which must not add to overload: only while the limiter is calm."""
        wait_share = min(queue.wait_limit.share for queue in self._queues)
        if self._free() and self.load(wait_share) < self._shed_load and self._pressure() < self._shed_load:
            return self._take(None, self._clock())
        return None

    async def _enter_of_batch(self, request: SlotRequest, on_slot: Callable[[], None]) -> Slot:
        asked = self._clock()
        try:
            slot = await self._backlog.enter(request)
        except TimeoutError:
            _shed(self.name, "batch", "expired").inc()
            why = f"{self.name}: {self._in_flight} of {self._limit.value} slots taken, no spare slot for a batch"
            raise Shed(why, retry_delay_s=self._retry_after_s, why="expired") from None
        on_slot()
        slot.waited_s = self._clock() - asked
        return slot

    def _spare_for_batch(self) -> Slot | None:
        """A slot for an item of a batch: never one of the last, nor more than the batches' share, nor before waiting
        requests. Where there is only one slot, a batch may have it."""
        limit, now = self._limit.value, self._clock()
        room = self._in_batches < self._batches.max_slots(limit, now) and self._in_flight < limit * self._shed_load
        if not room or self._waiting or self._pressure() >= self._shed_load:
            return None
        self._in_batches += 1
        return self._take(None, now, batch=True)

    def _queue_of(self, request: SlotRequest) -> WaitQueue[Slot]:
        within = self._shares.within(request.tenant, request.weight, self._limit.value)
        return self._queues[class_of(request.score) + (0 if within else len(CLASSES))]

    def _shed_low_priority(self, request: SlotRequest, queue: WaitQueue[Slot], now: float) -> None:
        score = request.score
        if not queue.within_share:
            if self.load(queue.wait_limit.share) >= self._shed_load:
                raise self._refusal(queue, "load", f"nearly full, and priority {score} is below {self._shed_score}")
            if any(better.wait_limit.overloaded(now) for better in self._queues[: queue.rank] if better.high_priority):
                raise self._refusal(queue, "load", f"requests of higher priority than {score} are refused too")
        if why := self._pressure_refusal(request.tenant):
            raise self._refusal(queue, "pressure", f"priority {score} is below {self._shed_score}, at {why}")

    def _free(self) -> bool:
        return not self._waiting and self._in_flight < self._limit.value

    def _take(self, tenant: str | None, now: float, batch: bool = False) -> Slot:
        self._in_flight += 1
        return Slot(self._release, self._in_flight, tenant, now, batch)

    async def _wait(self, request: SlotRequest, queue: WaitQueue[Slot], began: float, wait_s: float) -> Slot:
        loop = asyncio.get_running_loop()
        if wait_s <= 0:
            raise self._refusal(queue, "expired", "no time to wait")
        waiter: WaitingRequest[Slot] = WaitingRequest(
            request.tenant, request.weight, self._rank(request), queue, began + wait_s, loop.create_future()
        )
        if self._waiting >= self.queue_capacity:
            self._displace(waiter)
        self._add(waiter, began)
        beyond_s = min(_BEYOND_AFTER_S, wait_s / 2) if queue.within_share else wait_s
        timers = loop.call_later(wait_s, self._expire, waiter), loop.call_later(beyond_s, self._exceed_limit, waiter)
        try:
            outcome = await waiter.outcome
        except BaseException:  # cancelled, or closed with its loop
            self._abandon(waiter)
            raise
        finally:
            for timer in timers:
                timer.cancel()
        if isinstance(outcome, Shed):
            raise outcome
        outcome.waited_s = self._clock() - began
        self._wait_seconds.observe(outcome.waited_s)
        return outcome

    def _rank(self, request: SlotRequest) -> Rank:
        self._arrivals += 1
        return -request.deadline.at, -self._arrivals

    def _displace(self, newcomer: WaitingRequest[Slot]) -> None:
        """Displace a request in the full queue, or refuse the newcomer."""
        queue = next((queue for queue in reversed(self._queues) if queue.requests), None)
        if queue is None or not self._gives_way(worst := queue.requests.worst(), newcomer):
            raise self._refusal(newcomer.queue, "full", "the queue is full")
        self._shed(worst, "displaced", "displaced by another request")

    @staticmethod
    def _gives_way(worst: WaitingRequest[Slot], newcomer: WaitingRequest[Slot]) -> bool:
        if worst.queue is not newcomer.queue:
            return worst.queue.rank > newcomer.queue.rank
        load_of = newcomer.queue.requests.load_of
        more = load_of(worst.tenant, worst.weight) > load_of(newcomer.tenant, newcomer.weight, more=1)
        return worst.tenant != newcomer.tenant and more

    def _release(self, tenant: str | None, began: float | None, batch: bool, sample: Sample | None) -> None:
        self._in_flight -= 1
        self._in_batches -= batch
        if began is not None:
            self._hold_s += (self._clock() - began - self._hold_s) * (_HOLD_SHARE if self._hold_s else 1)
        if tenant is not None:
            self._shares.drop(tenant)
        if sample is not None:
            self._limit.sample(sample)
        if self._waiting:
            self._admit_waiting()
        if self._backlog:
            self._backlog.admit()

    def _admit_waiting(self) -> None:
        """Give the free slots to waiting requests."""
        for queue in self._queues:
            while self._in_flight < self._limit.value and (waiter := queue.requests.best()):
                if waiter.outcome.done():  # cancelled, and has not run since
                    self._remove(waiter)
                elif waiter.until <= self._clock():
                    self._expire(waiter)
                else:
                    self._admit(waiter)

    def _admit(self, waiter: WaitingRequest[Slot]) -> None:
        queue, now = waiter.queue, self._clock()
        queue.requests.take(waiter)
        queue.wait_limit.note_waiting(bool(queue.requests), now)
        self._waiting -= 1
        waiter.outcome.set_result(self._take(waiter.tenant, now))

    def _exceed_limit(self, waiter: WaitingRequest[Slot]) -> None:
        """Give a slot beyond the limit to a request that is within its tenant's share."""
        slots = self._limit.value * (1 + _BEYOND_SHARE)
        if waiter.queue.within_share and self._in_flight < slots and not waiter.outcome.done():
            self._admit(waiter)

    def _abandon(self, waiter: WaitingRequest[Slot]) -> None:
        """Clean up after a cancelled waiter, which may have been given a slot that it did not receive."""
        if waiter.outcome.cancelled() or not waiter.outcome.done():
            self._remove(waiter)
        elif isinstance(slot := waiter.outcome.result(), Slot):
            slot.release(unused=True)

    def _expire(self, waiter: WaitingRequest[Slot]) -> None:
        self._shed(waiter, "expired", "no slot became free in time")

    def _shed(self, waiter: WaitingRequest[Slot], why: str, what: str) -> None:
        self._remove(waiter)
        if not waiter.outcome.done():
            waiter.outcome.set_result(self._refusal(waiter.queue, why, what))

    def _add(self, waiter: WaitingRequest[Slot], now: float) -> None:
        waiter.queue.requests.add(waiter)
        waiter.queue.wait_limit.note_waiting(True, now)
        self._shares.add(waiter.tenant, waiter.weight)
        self._waiting += 1

    def _remove(self, waiter: WaitingRequest[Slot]) -> None:
        """Unserved."""
        if waiter.queue.requests.remove(waiter):
            waiter.queue.wait_limit.note_waiting(bool(waiter.queue.requests), self._clock())
            self._shares.drop(waiter.tenant)
            self._waiting -= 1

    def _refusal(self, queue: WaitQueue[Slot], why: str, what: str) -> Shed:
        """The error of a refused caller. The retry delay grows with the load, and is random, so that callers do not
        come back together."""
        queue.wait_limit.shed += why != "pressure"  # which is not the backend's
        _shed(self.name, queue.kind, why).inc()
        counts = f"{self._in_flight} of {self._limit.value} slots taken, {self._waiting} of {self._max_waiting} waiting"
        delay_s = self._retry_after_s * (1 + self.load()) * (1 + self._rng.random() / 2)
        return Shed(f"{self.name}: {counts}: {what}", retry_delay_s=delay_s, why=why)
