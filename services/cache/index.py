"""The index in which memory finds near questions, and its counterpart where only equal questions count."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol

from services.cache.device import CPU, Device

if TYPE_CHECKING:
    from services.cache.partition import Partition
    from services.cache.vectors import Vector


class Rebuilder(Protocol):
    """Makes partitions faster to search."""

    def consider(self, partition: Partition | None) -> None:
        """Make a partition's lists again where that is due."""

    def close(self) -> None:
        """Leave what is not done."""


class Index(Protocol):
    """Vectors by key, in partitions. Used by one thread."""

    def begin(self) -> None:
        """Prepare the thread that uses it."""

    def rebuilds(self, vectors_thread: Executor, device: Device = CPU) -> Rebuilder:
        """The worker that makes its partitions faster to search."""

    def __contains__(self, partition: bytes) -> bool: ...

    def partitions(self) -> list[bytes]:
        """The names of those that have vectors."""

    def partition(self, name: bytes) -> Partition | None:
        """The one of that name, where it has vectors."""

    def add(self, partition: bytes, vectors: Iterable[tuple[str, Vector]]) -> None:
        """Add vectors by key; the keys must not be there."""

    def remove(self, partition: bytes, keys: Iterable[str]) -> None:
        """Remove keys; those that are not there are passed over."""

    def nearest(self, partition: bytes, vector: Vector, count: int) -> list[tuple[str, float]]:
        """Up to `count` (key, cosine similarity) of a partition, nearest first."""
