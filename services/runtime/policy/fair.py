"""The order of waiting requests: tenants by weight, and within a tenant by rank.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996: https://doi.org/10.1145/248157.248171). Each tenant has a
start tag; the lowest is served, becomes the virtual time, and moves up by 1/weight. A tenant that comes to wait
starts at the virtual time, or at its old tag if that is later: absence neither saves nor wins anything. The algorithm
needs no estimate of a call's duration, which is unknown for a language model.

If each call's cost is known when it is over, `charge` moves its tenant's tag up by it.

When the queue is full, a request of the tenant with the most waiting requests for its weight is dropped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

_MOST_AWAY = 10_000  # tenants that were served and have no waiting request, whose tags are kept
Rank = tuple[float, int]


class Waiting(Protocol):
    """A waiting request. Ranks are unique; the highest of its tenant is served first."""

    @property
    def tenant(self) -> str: ...
    @property
    def weight(self) -> float: ...
    @property
    def rank(self) -> Rank: ...


W = TypeVar("W", bound=Waiting)
_rank: Callable[[Any], Rank] = lambda waiter: waiter.rank  # noqa: E731


@dataclass(slots=True)
class _Flow(Generic[W]):
    weight: float
    start: float
    waiting: list[W] = field(default_factory=list)  # the best last


class FairQueue(Generic[W]):
    """The waiting requests of one priority class. With `charged`, `charge` reports costs, and the tags of all tenants
    hold until `rest`; otherwise until no request waits."""

    def __init__(self, charged: bool = False) -> None:
        self._charged = charged
        self._flows: dict[str, _Flow[W]] = {}  # of tenants with waiting requests
        self._finished: OrderedDict[str, float] = OrderedDict()  # start tags of earlier ones, while any request waits
        self._virtual_time = 0.0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, waiter: W) -> None:
        flow = self._flows.get(waiter.tenant)
        if flow is None:
            start = max(self._virtual_time, self._finished.pop(waiter.tenant, 0.0))
            flow = self._flows[waiter.tenant] = _Flow(waiter.weight, start)
        flow.weight = waiter.weight
        insort(flow.waiting, waiter, key=_rank)
        self._count += 1

    def best(self) -> W | None:
        """The next request."""
        if not self._flows:
            return None
        return min(self._flows.values(), key=lambda flow: flow.start).waiting[-1]

    def take(self, waiter: W) -> None:
        """Serve `waiter`, the best one, at its tenant's cost."""
        flow = self._flows[waiter.tenant]
        self._virtual_time = flow.start
        flow.start += 1 / flow.weight
        self.remove(waiter)

    def charge(self, waiter: W, cost: float) -> None:
        """Add the cost of a taken `waiter` beyond the 1 of its turn."""
        more, flow = cost / waiter.weight, self._flows.get(waiter.tenant)
        if flow:
            flow.start += more
        else:
            self._keep_tag(waiter.tenant, self._finished.get(waiter.tenant, self._virtual_time) + more)

    def rest(self) -> None:
        """The end of a busy period, when no request waits: all tenants start even."""
        self._finished.clear()
        self._virtual_time = 0.0

    def remove(self, waiter: W) -> bool:
        """Remove `waiter` without service; False if it does not wait here."""
        flow = self._flows.get(waiter.tenant)
        if flow is None:
            return False
        at = bisect_left(flow.waiting, waiter.rank, key=_rank)
        if at == len(flow.waiting) or flow.waiting[at] is not waiter:
            return False
        del flow.waiting[at]
        self._count -= 1
        if not flow.waiting:
            self._leave(waiter.tenant, flow)
        return True

    def worst(self) -> W:
        """The request to drop first: the last of the tenant with the most waiting for its weight. One must wait."""
        return max(self._flows.values(), key=lambda flow: len(flow.waiting) / flow.weight).waiting[0]

    def load_of(self, tenant: str, weight: float, more: int = 0) -> float:
        """The number of `tenant`'s requests that would wait per unit of `weight`, with `more` added."""
        flow = self._flows.get(tenant)
        return ((len(flow.waiting) if flow else 0) + more) / weight

    def _leave(self, tenant: str, flow: _Flow[W]) -> None:
        del self._flows[tenant]
        self._keep_tag(tenant, flow.start)
        if not (self._flows or self._charged):
            self.rest()

    def _keep_tag(self, tenant: str, start: float) -> None:
        """Keep the tag of a tenant that may return. The tag of the tenant that left longest ago is dropped first."""
        self._finished[tenant] = start
        self._finished.move_to_end(tenant)
        if len(self._finished) > _MOST_AWAY:
            self._finished.popitem(last=False)


class Shares:
    """The slots that each tenant holds or waits for, against its weight among all that ask."""

    def __init__(self) -> None:
        self._tenants: dict[str, list[float]] = {}  # (requests, weight) of those with any
        self._weights = 0.0

    def add(self, tenant: str, weight: float) -> None:
        """Add a request of `tenant`, whose weight is now `weight`."""
        entry = self._tenants.setdefault(tenant, [0, 0.0])
        self._weights += weight - entry[1]
        entry[0], entry[1] = entry[0] + 1, weight

    def drop(self, tenant: str) -> None:
        """Remove a request of `tenant`."""
        entry = self._tenants[tenant]
        entry[0] -= 1
        if not entry[0]:
            del self._tenants[tenant]
            self._weights = self._weights - entry[1] if self._tenants else 0.0

    def within(self, tenant: str, weight: float, slots: int) -> bool:
        """Whether one more request of `tenant` stays within its share of `slots`; no where no other tenant asks: a
        tenant that is alone has no share to be protected."""
        entry = self._tenants.get(tenant)
        if len(self._tenants) - (entry is not None) < 1:
            return False
        weights = self._weights + (weight if entry is None else 0.0)
        return (entry[0] if entry else 0) + 1 <= slots * weight / weights
