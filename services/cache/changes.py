"""Changes of the entries that replicas share, and those that wait until the others can hear of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from services.cache.entries import Entry
from services.cache.fair_lru import FairLru
from services.cache.vectors import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """An entry takes the place of any of its key. `known`: see `Store.known`. `forgiven`: positions of removals that
    came after that and do not overtake it, because who made them put it here afterwards."""

    entry: Entry
    vector: Vector | None
    known: int
    forgiven: tuple[int, ...] = ()

    @property
    def tenant(self) -> str:
        return self.entry.tenant

    @property
    def size(self) -> int:
        return self.entry.size


@dataclass(frozen=True, slots=True)
class Delete:
    """An entry goes."""

    key: str

    def removes(self, key: str, tenant: str) -> bool:
        return key == self.key


@dataclass(frozen=True, slots=True)
class DeleteTenant:
    """All entries of a tenant go."""

    tenant: str

    def removes(self, key: str, tenant: str) -> bool:
        return tenant == self.tenant


Removing = Delete | DeleteTenant
Change = Put | Removing


class Outbox:
    """Changes to tell later: the removals, and of the entries that were put since those that are left.

    All removals come before all entries: an entry that a removal is about goes with it, so what is there came later.
    There is room for `max_changes` of each kind, and `max_bytes` of entries. Entries make room for newer ones, those of
    the tenant with most of them first; a removal is never given up.
    """

    def __init__(self, max_changes: int, max_bytes: int):
        self._max_changes = max_changes
        self._removals: dict[Removing, Removing] = {}
        self._puts: FairLru[str, Put] = FairLru(max_changes, max_bytes)
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._removals) + len(self._puts)

    def __contains__(self, change: Change) -> bool:
        """Whether this very change waits."""
        waiting = self._puts.get(change.entry.key) if isinstance(change, Put) else self._removals.get(change)
        return waiting is change

    def next(self, count: int) -> list[Change]:
        """Up to `count` changes that are to be told next, all of them removals or none."""
        return list(islice(self._removals.values() or self._puts, count))

    def add(self, change: Change) -> bool:
        """Take a change in; False for a removal that there is no room for."""
        if isinstance(change, Put):
            self._puts.pop(change.entry.key)
            self._puts.put(change.entry.key, change)
            self._make_room()
            return True
        for put in [put for put in self._puts if change.removes(put.entry.key, put.tenant)]:
            self._puts.pop(put.entry.key)
        self._removals.pop(change, None)
        if len(self._removals) >= self._max_changes:
            return False
        self._removals[change] = change
        return True

    def told(self, change: Change) -> None:
        """A change need not be told any more. What came in its place stays."""
        if change not in self:
            return
        if isinstance(change, Put):
            self._puts.pop(change.entry.key)
        else:
            del self._removals[change]

    def removes(self, key: str, tenant: str) -> bool:
        """Whether others do not know yet that an entry is gone."""
        return Delete(key) in self._removals or DeleteTenant(tenant) in self._removals

    def decides(self, key: str, tenant: str) -> bool:
        """Whether others do not know yet what became of an entry."""
        return key in self._puts or self.removes(key, tenant)

    def _make_room(self) -> None:
        while self._puts.full:
            self._puts.pop(self._puts.next_to_go())
            self.given_up += 1
