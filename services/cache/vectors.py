"""Embeddings as arrays, and the nearest of them, in partitions that never see each other."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from itertools import count

import numpy as np

from services.cache.device import CPU, Device
from services.cache.ivf_index import Vector, scan_on_one_core
from services.cache.partition import Partition
from services.cache.rebuild import Rebuilds

__all__ = ["Vector", "VectorIndex", "scan_on_one_core"]


class VectorIndex:
    """Vectors by key, in partitions that never see each other. Not thread-safe: used by one thread."""

    begin = staticmethod(scan_on_one_core)  # called once on the thread that uses it

    def __init__(self, dimension: int, device: Device = CPU):
        """`device` clusters large partitions."""
        self._dimension, self._device = dimension, device
        self._partitions: dict[bytes, Partition] = {}
        self._ids: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._next_id = count()

    def __contains__(self, partition: bytes) -> bool:
        return partition in self._partitions

    def __len__(self) -> int:
        return len(self._ids)

    def rebuilds(self, vectors_thread: Executor) -> Rebuilds:
        """The worker that rebuilds the lists of its partitions."""
        return Rebuilds(vectors_thread, self._device)

    def partitions(self) -> list[bytes]:
        """The names of those that have vectors."""
        return list(self._partitions)

    def partition(self, name: bytes) -> Partition | None:
        """The partition with this name, if it has vectors."""
        return self._partitions.get(name)

    def add(self, partition: bytes, vectors: Iterable[tuple[str, Vector]]) -> None:
        """Add vectors by key; the keys must not be there."""
        keys, rows = zip(*vectors, strict=True)
        ids = [next(self._next_id) for _ in keys]
        if partition not in self._partitions:
            self._partitions[partition] = Partition(self._dimension)
        self._partitions[partition].add(np.array(ids, np.int64), np.stack(rows))
        self._ids.update(zip(keys, ids, strict=True))
        self._keys.update(zip(ids, keys, strict=True))

    def remove(self, partition: bytes, keys: Iterable[str]) -> None:
        """Remove keys; those that are not there are passed over."""
        ids = [found for key in keys if (found := self._ids.pop(key, None)) is not None]
        if not ids:
            return
        for removed in ids:
            del self._keys[removed]
        held = self._partitions[partition]
        held.remove(np.array(ids, np.int64))
        if not len(held):
            del self._partitions[partition]

    def nearest(self, partition: bytes, vector: Vector, count: int) -> list[tuple[str, float]]:
        """Up to `count` (key, cosine similarity) of a partition, nearest first."""
        held = self._partitions.get(partition)
        return [(self._keys[found], similarity) for found, similarity in held.search(vector, count)] if held else []
