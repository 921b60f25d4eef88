"""Things that tenants keep in a gateway's memory, within one budget of bytes.

Whoever is alone may fill it. When it is full, the tenant that holds the most gives up what it used longest ago, so who
holds no more than an equal share loses nothing to others. It is how routers drop from the longest queue (Suter et al.,
https://doi.org/10.1109/INFCOM.1998.659666).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
_STALE = 64  # outdated notes of who holds how much that may be kept beside twice the tenants


@dataclass(slots=True)
class _Own(Generic[T]):
    """What one tenant keeps, each with its size; the least recently used first."""

    things: OrderedDict[bytes, tuple[T, int]] = field(default_factory=OrderedDict)
    bytes: int = 0


class Room(Generic[T]):
    """Things by tenant and key. Their owner says how large each is."""

    def __init__(self, max_bytes: int, max_things: int | None = None):
        self._max_bytes, self._max_things = max_bytes, max_things
        self._tenants: dict[str, _Own[T]] = {}
        self._notes: list[
            tuple[int, str]
        ] = []  # a heap of (-bytes, tenant), the largest first; outdated ones may be in it
        self.bytes = self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, tenant: str, key: bytes) -> T | None:
        """What is kept there; it was just used."""
        own = self._tenants.get(tenant)
        kept = own.things.get(key) if own else None
        if own is None or kept is None:
            return None
        own.things.move_to_end(key)
        return kept[0]

    def put(self, tenant: str, key: bytes, thing: T, size: int) -> list[T]:
        """Keep something in place of what is there. Returns what is not kept any more, maybe the thing itself."""
        replaced = self.pop(tenant, key)
        gone = [] if replaced is None else [replaced]
        if size > self._max_bytes:
            return [*gone, thing]
        own = self._tenants.setdefault(tenant, _Own())
        own.things[key] = (thing, size)
        self._account(tenant, own, size, 1)
        while self.bytes > self._max_bytes or (self._max_things is not None and self._count > self._max_things):
            gone.append(self._oldest_of(self._largest()))
        return gone

    def pop(self, tenant: str, key: bytes) -> T | None:
        """Let go of something, and return it."""
        own = self._tenants.get(tenant)
        kept = own.things.pop(key, None) if own else None
        if own is None or kept is None:
            return None
        self._account(tenant, own, -kept[1], -1)
        return kept[0]

    def pop_tenant(self, tenant: str) -> list[T]:
        """Let go of all that is a tenant's, and return it."""
        own = self._tenants.pop(tenant, None)
        if own is None:
            return []
        self.bytes -= own.bytes
        self._count -= len(own.things)
        return [thing for thing, _ in own.things.values()]

    def clear(self) -> None:
        """Let go of everything."""
        self._tenants.clear()
        self._notes.clear()
        self.bytes = self._count = 0

    def _account(self, tenant: str, own: _Own[T], size: int, things: int) -> None:
        own.bytes += size
        self.bytes += size
        self._count += things
        if not own.things:
            del self._tenants[tenant]
        elif len(self._notes) > 2 * len(self._tenants) + _STALE:
            self._notes = [(-each.bytes, name) for name, each in self._tenants.items()]
            heapq.heapify(self._notes)
        else:
            heapq.heappush(self._notes, (-own.bytes, tenant))

    def _largest(self) -> str:
        """The tenant that holds the most. Every change was noted, so the first note that is still true is of it."""
        while True:
            size, tenant = self._notes[0]
            own = self._tenants.get(tenant)
            if own and own.bytes == -size:
                return tenant
            heapq.heappop(self._notes)

    def _oldest_of(self, tenant: str) -> T:
        own = self._tenants[tenant]
        _, (thing, size) = own.things.popitem(last=False)
        self._account(tenant, own, -size, -1)
        return thing
