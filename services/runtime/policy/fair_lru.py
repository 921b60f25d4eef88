"""What several tenants keep in one room: when it is full, the tenant that takes most of it makes room.

A tenant's share is the larger of its part of the entries and its part of the bytes. The value to go is the least
recently used one of the tenant with the largest share, so shares become max-min fair: one that has less than an equal
part of the room loses nothing, whatever the others bring. Routers drop from the longest queue in the same way.
Sources: Ghodsi et al., Dominant Resource Fairness, NSDI 2011; Suter et al., https://doi.org/10.1109/INFCOM.1998.659666.
"""

from __future__ import annotations

import heapq
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Generic, Protocol, TypeVar


class Kept(Protocol):
    """What can be kept. Neither may change while it is."""

    @property
    def tenant(self) -> str: ...
    @property
    def size(self) -> int:
        """In bytes."""


K = TypeVar("K")
V = TypeVar("V", bound=Kept)


@dataclass(slots=True)
class _Holding(Generic[K]):
    keys: OrderedDict[K, None] = field(default_factory=OrderedDict)  # least recently used first
    bytes: int = 0


class FairLru(Generic[K, V]):
    """Values by key. `replace` keeps it within its limits; who needs to know what goes uses `put`, `full` and
    `next_to_go`."""

    def __init__(self, max_bytes: int, max_entries: int = sys.maxsize):
        self.max_entries, self.max_bytes, self.bytes = max_entries, max_bytes, 0
        self._values: dict[K, V] = {}
        self._tenants: dict[str, _Holding[K]] = {}
        # A heap of (minus a share, tenant). A tenant's share is no larger than the largest it stands with here: where
        # it has become smaller that is mended when it comes up.
        self._shares: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[V]:
        return iter(self._values.values())

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        return self._values.get(key)

    def keys_of(self, tenant: str) -> list[K]:
        """A tenant's keys, least recently used first."""
        holding = self._tenants.get(tenant)
        return list(holding.keys) if holding else []

    def oldest_while(self, condition: Callable[[V], bool]) -> list[K]:
        """Of each tenant the least recently used, up to the first for which `condition` does not hold."""
        held = (takewhile(lambda key: condition(self._values[key]), each.keys) for each in self._tenants.values())
        return list(chain.from_iterable(held))

    def put(self, key: K, value: V) -> None:
        """Hold a value, whose key is not held yet, as its tenant's most recently used."""
        self._values[key] = value
        holding = self._tenants.setdefault(value.tenant, _Holding())
        holding.keys[key] = None
        holding.bytes += value.size
        self.bytes += value.size
        self._stand(value.tenant)

    def use(self, key: K) -> None:
        """Make a held value the most recently used of its tenant."""
        self._tenants[self._values[key].tenant].keys.move_to_end(key)

    def pop(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            holding = self._tenants[value.tenant]
            del holding.keys[key]
            holding.bytes -= value.size
            self.bytes -= value.size
            if not holding.keys:
                del self._tenants[value.tenant]
        return value

    def replace(self, key: K, value: V) -> list[V]:
        """Hold a value in place of any of its key, and make room. Returns those that are not held any more; one that is
        larger than all the room is among them, and takes nothing's place."""
        replaced = self.pop(key)
        gone = [] if replaced is None else [replaced]
        if value.size > self.max_bytes:
            return [*gone, value]
        self.put(key, value)
        while self.full:
            if (made_room := self.pop(self.next_to_go())) is not None:
                gone.append(made_room)
        return gone

    def pop_tenant(self, tenant: str) -> list[V]:
        """Let go of all that is a tenant's."""
        return [value for key in self.keys_of(tenant) if (value := self.pop(key)) is not None]

    def clear(self) -> None:
        """Let go of everything."""
        self._values.clear()
        self._tenants.clear()
        self._shares.clear()
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether something has to go."""
        return len(self._values) > self.max_entries or self.bytes > self.max_bytes

    def next_to_go(self) -> K:
        """The least recently used of the tenant with the largest share. There must be something."""
        while (share := self._share(tenant := self._shares[0][1])) != -self._shares[0][0]:
            if share:
                heapq.heapreplace(self._shares, (-share, tenant))
            else:
                heapq.heappop(self._shares)
        return next(iter(self._tenants[tenant].keys))

    def _share(self, tenant: str) -> float:
        holding = self._tenants.get(tenant)
        return max(len(holding.keys) / self.max_entries, holding.bytes / self.max_bytes) if holding else 0.0

    def _stand(self, tenant: str) -> None:
        heapq.heappush(self._shares, (-self._share(tenant), tenant))
        if len(self._shares) > 2 * len(self._tenants) + 1_000:  # mostly of shares that are smaller by now
            self._shares = [(-self._share(name), name) for name in self._tenants]
            heapq.heapify(self._shares)
