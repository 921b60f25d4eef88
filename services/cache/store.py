"""The seam to where entries are kept: a file of this process alone, or a Redis that many processes share.

A store has memory hold what it keeps, and keeps what it has memory hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from services.cache.entries import Entry
from services.cache.identity import Identity
from services.cache.vectors import Vector
from services.runtime.deadline import Deadline


@dataclass(frozen=True, slots=True)
class Made:
    """A change that was made: to how many entries, and whether in this process alone until others can hear of it."""

    entries: int
    alone: bool = False


class Store(Protocol):
    """Where entries are kept. `run()` must be running."""

    @property
    def alone(self) -> bool:
        """Whether the others who share the entries cannot be heard of: this process's memory is all there is."""

    @property
    def queued(self) -> int:
        """How many changes the others have not heard of, because they could not be told."""

    @property
    def known(self) -> int:
        """The last change memory knows. What is removed after it overtakes a store that begins now."""

    def overtaken(self, question: Identity, epoch: int) -> bool:
        """Whether a question's key or tenant was removed after `epoch`, an earlier `known` of here or, where the store
        is shared, of elsewhere, as far as that can be told before it is stored."""

    async def insert(self, entry: Entry, vector: Vector | None, known: int) -> Made:
        """Keep an entry, whose store began when `known` was the last change known. When this returns it is kept and
        served; when it raises it is neither. Raises `NotKept`, `Exhausted` where too much waits, and `Overtaken` where
        its key or tenant was removed."""

    async def delete(self, key: str) -> Made:
        """Delete an entry. When this returns it does not come back. Raises `NotKept`."""

    async def delete_tenant(self, tenant: str) -> Made:
        """Delete all entries of a tenant. When this returns none comes back. Raises `NotKept`."""

    async def fetch(self, question: Identity, deadline: Deadline) -> None:
        """Have memory hold the entry for this very question, where the store may have one that memory does not hold.
        Raises `SharedStateLost` where the store did not say in time."""

    def touch(self, entries: list[Entry]) -> None:
        """Write down when entries were last used."""

    def expired(self, entries: list[Entry]) -> None:
        """Entries left memory because they were kept long enough."""

    async def load(self) -> None:
        """Have memory hold what is kept, before anything is served."""

    async def run(self) -> None:
        """Write what is to be kept, and hear of what others changed, until cancelled."""

    async def close(self) -> None:
        """Write what still waits. `run()` must have ended."""
