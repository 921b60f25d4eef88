"""The interface of entry stores: a file of one process, a Redis that many processes share, or a backend of your own,
which is a module with `open_store` and a line in `config.py`; its settings beyond `CacheSettings` are in a settings
class of its own.

A store loads its entries into memory, and persists the changes of memory. Changes have sequence numbers that only grow,
also over a restart. All replicas of a shared store apply the same sequence of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from services.cache.config import STORES, CacheSettings
from services.cache.entries import Entry
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline

if TYPE_CHECKING:
    from services.cache.vectors import Vector


Used = tuple[Entry, int]  # an entry, and how often it was used


class Store(Protocol):
    """A store of entries. `run()` must be running."""

    @property
    def local(self) -> bool:
        """Whether the shared store is unreachable: only memory is read, and no entry is stored or removed."""

    @property
    def sequence(self) -> int:
        """The number of the last change in memory: the epoch of an answer that is begun now."""

    async def insert(self, entry: Entry, vector: Vector | None, epoch: int) -> bool:
        """Store an entry. True: it is stored and served. False: it was skipped, because the store is `local`; whether
        it is stored is unknown. Raises `Conflict` if its key or its tenant was removed after `epoch`, `NotKept`, and
        `Exhausted` if too much waits; then it is neither stored nor served."""

    async def remove(self, removal: Removal) -> int:
        """Remove entries, and return how many there were. After the return none of them is served again. Raises
        `NotKept`, `NotRemoved` if the store is `local`, and `Exhausted` if too much waits."""

    async def tighten(self, key: str, tenant: str, least_score: float) -> bool:
        """Raise the least similarity of an entry's semantic hits to `least_score`, if this tenant has it. A higher one
        stays, also for an entry that replaces it, until the entry is removed. False: neither the store nor this process
        has such an entry of the tenant; a shared store then removes it from all replicas. Persisted at the return.
        Raises `NotKept`, and `VerdictNotKept` if the store is `local`."""

    async def fetch(self, question: KeyedQuestion, deadline: Deadline) -> None:
        """Load the exact entry of this question into memory, if the store may have it and memory does not. Raises
        `SharedStateLost` if the store did not answer in time."""

    def sweep(self, used: Sequence[Used], gone: Sequence[Entry]) -> None:
        """Called at intervals: persist when and how often entries were `used`, and delete those that memory has dropped
        because they expired."""

    async def load(self) -> None:
        """Load all entries into memory, before any is served."""

    async def run(self) -> None:
        """Persist changes, and follow other replicas' changes, until cancelled."""

    async def close(self) -> None:
        """Persist waiting changes. `run()` must have ended."""


def opener(name: str) -> OpenStore:
    """The function that opens a store of this name. Only the backend that is used is imported."""
    return cast("OpenStore", import_module(STORES[name]).open_store)


class OpenStore(Protocol):
    """`open_store` of a backend's module. `embedded_by` names the engine whose embeddings can be compared; `now_ms` is
    Unix time in milliseconds."""

    def __call__(
        self, settings: CacheSettings, memory: Memory, embedded_by: str, now_ms: Callable[[], int]
    ) -> AbstractAsyncContextManager[Store]: ...
