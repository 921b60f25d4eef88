"""An LRU cache that several tenants share fairly: when it is full, it evicts a value of the tenant with the largest
share.

A tenant's share is the larger of its fraction of the entries and its fraction of the bytes. The evicted value is by
default the tenant's least recently used one. So shares become max-min fair: a tenant with less than an equal share
loses nothing, whatever others add. Routers drop packets from the longest queue in the same way. Sources: Ghodsi et al.,
Dominant Resource Fairness, NSDI 2011; Suter et al., https://doi.org/10.1109/INFCOM.1998.659666.
"""

from __future__ import annotations

import heapq
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Generic, Protocol, TypeVar


class CachedValue(Protocol):
    """A value of the cache. While it is held, its tenant does not change, and its size only as `grow` records."""

    @property
    def tenant(self) -> str: ...
    @property
    def size(self) -> int:
        """The size in bytes."""


K = TypeVar("K")
V = TypeVar("V", bound=CachedValue)
W = TypeVar("W", contravariant=True)


class EvictionOrder(Protocol[K, W]):
    """The order in which a tenant's values are evicted."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[K]: ...
    def put(self, key: K, value: W) -> None:
        """Add a value."""

    def use(self, key: K, value: W) -> None:
        """Record a use of a value."""

    def pop(self, key: K) -> None:
        """Remove a value."""

    def next_to_evict(self) -> K:
        """The next value to evict."""


class Recency(Generic[K, V]):
    """Evicts the least recently used value first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[K, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys)

    def put(self, key: K, value: V) -> None:
        self._keys[key] = None

    def use(self, key: K, value: V) -> None:
        self._keys.move_to_end(key)

    def pop(self, key: K) -> None:
        del self._keys[key]

    def next_to_evict(self) -> K:
        return next(iter(self._keys))


@dataclass(slots=True)
class _Holding(Generic[K, V]):
    keys: EvictionOrder[K, V]
    bytes: int = 0


class FairLru(Generic[K, V]):
    """Values by key. `replace` keeps the limits; a caller that needs the evicted values uses `put`, `full` and
    `next_to_evict`. `order` makes the order of a tenant's values."""

    def __init__(
        self, max_bytes: int, max_entries: int = sys.maxsize, order: Callable[[], EvictionOrder[K, V]] = Recency[K, V]
    ):
        self._order = order
        self.max_entries, self.max_bytes, self.bytes = max_entries, max_bytes, 0
        self._values: dict[K, V] = {}
        self._tenants: dict[str, _Holding[K, V]] = {}
        # A heap of (minus a share, tenant). A share here may be outdated, but is never below the tenant's real one;
        # it is corrected when it reaches the top.
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
        """A tenant's keys, in its order of eviction."""
        holding = self._tenants.get(tenant)
        return list(holding.keys) if holding else []

    def bytes_of(self, tenant: str) -> int:
        """The bytes of a tenant's values."""
        holding = self._tenants.get(tenant)
        return holding.bytes if holding else 0

    def next_to_evict_of(self, tenant: str) -> K:
        """The tenant's next value to evict. There must be one."""
        return self._tenants[tenant].keys.next_to_evict()

    def oldest_while(self, condition: Callable[[V], bool]) -> list[K]:
        """Of each tenant its next values to evict, up to the first for which `condition` is false."""
        held = (takewhile(lambda key: condition(self._values[key]), each.keys) for each in self._tenants.values())
        return list(chain.from_iterable(held))

    def put(self, key: K, value: V) -> None:
        """Add a value with a new key, as its tenant's most recently used."""
        self._values[key] = value
        holding = self._tenants.get(value.tenant)
        if holding is None:
            holding = self._tenants[value.tenant] = _Holding(self._order())
        holding.keys.put(key, value)
        holding.bytes += value.size
        self.bytes += value.size
        self._push_share(value.tenant)

    def use(self, key: K) -> None:
        """Record a use: by default the value becomes its tenant's most recently used."""
        value = self._values[key]
        self._tenants[value.tenant].keys.use(key, value)

    def grow(self, key: K, size: int) -> None:
        """Record that the size of a value has grown by `size`."""
        tenant = self._values[key].tenant
        self._tenants[tenant].bytes += size
        self.bytes += size
        self._push_share(tenant)

    def pop(self, key: K) -> V | None:
        value = self._values.pop(key, None)
        if value is not None:
            holding = self._tenants[value.tenant]
            holding.keys.pop(key)
            holding.bytes -= value.size
            self.bytes -= value.size
            if not len(holding.keys):
                del self._tenants[value.tenant]
        return value

    def replace(self, key: K, value: V) -> list[V]:
        """Add a value, or replace the one with its key, and evict others if needed. Returns the values that were
        removed; a value larger than the whole cache is among them, and evicts no other."""
        replaced = self.pop(key)
        removed = [] if replaced is None else [replaced]
        if value.size > self.max_bytes:
            return [*removed, value]
        self.put(key, value)
        while self.full:
            if (evicted := self.pop(self.next_to_evict())) is not None:
                removed.append(evicted)
        return removed

    def pop_tenant(self, tenant: str) -> list[V]:
        """Remove all values of a tenant."""
        return [value for key in self.keys_of(tenant) if (value := self.pop(key)) is not None]

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()
        self._tenants.clear()
        self._shares.clear()
        self.bytes = 0

    @property
    def full(self) -> bool:
        """Whether a value must be evicted."""
        return len(self._values) > self.max_entries or self.bytes > self.max_bytes

    def next_to_evict(self) -> K:
        """The next value to evict, of the tenant with the largest share. There must be one."""
        while (share := self._share(tenant := self._shares[0][1])) != -self._shares[0][0]:
            if share:
                heapq.heapreplace(self._shares, (-share, tenant))
            else:
                heapq.heappop(self._shares)
        return self.next_to_evict_of(tenant)

    def _share(self, tenant: str) -> float:
        holding = self._tenants.get(tenant)
        return max(len(holding.keys) / self.max_entries, holding.bytes / self.max_bytes) if holding else 0.0

    def _push_share(self, tenant: str) -> None:
        heapq.heappush(self._shares, (-self._share(tenant), tenant))
        if len(self._shares) > 2 * len(self._tenants) + 1_000:  # most are outdated
            self._shares = [(-self._share(name), name) for name in self._tenants]
            heapq.heapify(self._shares)
