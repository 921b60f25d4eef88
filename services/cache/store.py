"""The seam to where entries are kept: a file of this process alone, a Redis that many processes share, or a backend of
yours, which is one module with `open_store` and one line in `stores.py`.

A store has memory hold what it keeps, and keeps what it has memory hold. Its changes have sequence numbers, which only
grow, over a restart too. A store that is shared has every replica's memory follow the same sequence of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from services.cache.entries import Entry
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.stores import STORES
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline

if TYPE_CHECKING:
    from services.cache.config import CacheSettings
    from services.cache.vectors import Vector


Used = tuple[Entry, int]  # an entry, and how often it was used


class Store(Protocol):
    """Where entries are kept. `run()` must be running."""

    @property
    def local(self) -> bool:
        """Whether what is shared cannot be reached: memory is all there is, nothing is stored, nothing is removed."""

    @property
    def sequence(self) -> int:
        """Of the last change that memory has: the epoch of an answer that is begun now."""

    async def insert(self, entry: Entry, vector: Vector | None, epoch: int) -> bool:
        """Keep an entry. True: it is kept, and served. False: it was skipped, because the store is `local`; whether it
        is kept is not known. Raises `Conflict` where its key or its tenant was removed after `epoch`, `NotKept`, and
        `Exhausted` where too much waits; then it is neither kept nor served."""

    async def remove(self, removal: Removal) -> int:
        """Remove what is kept, and return how many entries that was. When this returns none of them comes back.
        Raises `NotKept`, and `NotRemoved` where the store is `local`."""

    async def tighten(self, key: str, tenant: str, least_score: float) -> bool:
        """Have an entry, where this tenant has it, be a hit of what is merely alike from this score on; one that is
        tighter stays so, and so does what takes its place, until it is removed. False: the tenant has no such entry.
        When this returns that is kept. Raises `NotKept`, and `VerdictNotKept` where the store is `local`."""

    async def fetch(self, question: KeyedQuestion, deadline: Deadline) -> None:
        """Have memory hold the entry for this very question, where the store may have one that memory does not hold.
        Raises `SharedStateLost` where the store did not say in time."""

    def sweep(self, used: Sequence[Used], gone: Sequence[Entry]) -> None:
        """Called every now and then: write down when and how often entries were `used` since, and let go of those that
        left memory because they were kept long enough."""

    async def load(self) -> None:
        """Have memory hold what is kept, before anything is served."""

    async def run(self) -> None:
        """Write what is to be kept, and follow what others change, until cancelled."""

    async def close(self) -> None:
        """Write what still waits. `run()` must have ended."""


def opener(name: str) -> OpenStore:
    """The function that opens a store of this name. Only the backend that is used is imported."""
    return cast("OpenStore", import_module(STORES[name]).open_store)


class OpenStore(Protocol):
    """`open_store` of a backend's module. `embedded_by` names the engine whose embeddings can be compared; `now_ms` is
    Unix time in milliseconds."""

    def __call__(
        self, settings: CacheSettings, memory: Memory, embedded_by: str, now_ms: Callable[[], int]
    ) -> AbstractAsyncContextManager[Store]: ...
