"""The queues of a limiter, one for each class, and how long requests may wait in them.

A full wait is for bursts. In overload they wait 5 ms at most: the others would wait in vain, and had better know at
once. A slot that becomes free still finds a taker, because in overload another comes soon. Overload is when requests
have waited for half of a full wait without a break, or when more than a fifth of those that came left without a slot.

After "controlled delay" in Maurer, "Fail at Scale", ACM Queue 13(8), 2015
(https://queue.acm.org/detail.cfm?id=2839461), which judges by how long the queue has not been empty. That alone sees
the beginning of an overload and not its lasting: a queue whose waits are 5 ms is often empty in the worst of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from services.gateway.policies.slot import CLASSES, Shed
from services.runtime.policy.fair import FairQueue, Rank

_OVERLOAD_S = 0.005
_OVERLOAD_SHARE = 0.2  # at a load of 0.95, ten slots or more lose fewer even without any wait (Erlang's formula B)
_MIN_ARRIVALS = 10  # fewer have no share to speak of
_FORGET = 5  # full waits after which an overload without new requests is over
_WAITING_SHARE = 0.5  # of a full wait
P = TypeVar("P")


class WaitLimit:
    """The wait: `full_s`, or `overload_s` in overload. Judged every `full_s` by the requests that `arrived` and were
    `shed` since."""

    def __init__(self, full_s: float, overload_s: float = _OVERLOAD_S):
        self._full_s, self._now_s, self._overload_s = full_s, full_s, min(full_s, overload_s)
        self._judged = float("-inf")
        self._waiting_since = self._arrived_at = float("inf")
        self.arrived = self.shed = 0

    @property
    def share(self) -> float:
        """The share of the full wait time that is granted now, 0 to 1."""
        return self._now_s / self._full_s if self._full_s else 0.0

    def overloaded(self, now: float) -> bool:
        """Whether waits are cut short; no where no request has come for some time."""
        return self._now_s < self._full_s and now - self._judged < _FORGET * self._full_s

    def note_waiting(self, waiting: bool, now: float) -> None:
        self._waiting_since = min(self._waiting_since, now) if waiting else float("inf")

    def seconds(self, now: float) -> float:
        """How long a request that comes at `now`, in seconds on any clock, may wait; it counts as having come."""
        if now - self._arrived_at >= _FORGET * self._full_s:
            self._judge(now, overload=False)
        elif now - self._waiting_since >= self._full_s * _WAITING_SHARE and self._now_s > self._overload_s:
            self._judge(now, overload=True)
        elif now - self._judged >= self._full_s and self.arrived >= _MIN_ARRIVALS:
            self._judge(now, overload=self.shed > self.arrived * _OVERLOAD_SHARE)
        self._arrived_at, self.arrived = now, self.arrived + 1
        return self._now_s

    def _judge(self, now: float, *, overload: bool) -> None:
        self._now_s = self._overload_s if overload else self._full_s
        self._judged, self.arrived, self.shed = now, 0, 0


@dataclass(slots=True, eq=False)
class WaitingRequest(Generic[P]):
    tenant: str
    weight: float
    rank: Rank
    queue: WaitQueue[P]
    until: float  # on the limiter's clock: the end of its wait or its budget
    outcome: asyncio.Future[P | Shed]  # a refusal is a result: an exception that is not fetched would be logged


class WaitQueue(Generic[P]):
    """The queue of `rank` 0 is served first. Requests within their tenant's share wait for the full time also in
    overload: other tenants cause it, their slots will become free, and there are never more such requests than slots.
    """

    def __init__(self, rank: int, queue_s: float):
        self.rank, self.kind = rank, CLASSES[rank % len(CLASSES)]
        self.within_share = rank < len(CLASSES)
        self.high_priority = self.kind in ("critical", "high")
        self.requests = FairQueue[WaitingRequest[P]]()
        self.wait_limit = WaitLimit(queue_s, overload_s=queue_s) if self.within_share else WaitLimit(queue_s)
