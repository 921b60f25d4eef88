"""Embeddings as arrays, and the nearest of them: one FAISS index per partition.

The vectors have unit length, so their inner product is the cosine of the angle between them. They are indexed as
16-bit floats: a scan of 50,000 reads 38 MB instead of 77, and a similarity moves by less than 0.001.
Source: Johnson, Douze, Jégou, Billion-scale similarity search with GPUs, arXiv 1702.08734; https://faiss.ai
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import faiss
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]  # shape (dimension,), unit length


def scan_on_one_core() -> None:
    """Make searches of the calling thread use that thread alone.

    OpenMP keeps the number per thread. A scan takes about a millisecond; waiting for a second worker to be scheduled
    on a busy machine takes twenty.
    """
    faiss.omp_set_num_threads(1)


class VectorIndex:
    """Vectors by key, in partitions that never see each other. Not thread-safe: used by one thread."""

    def __init__(self, dimension: int):
        self._dimension = dimension
        self._partitions: dict[bytes, faiss.IndexIDMap] = {}
        self._ids: dict[str, int] = {}
        self._keys: dict[int, str] = {}
        self._next_id = count()

    def __contains__(self, partition: bytes) -> bool:
        return partition in self._partitions

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, partition: bytes, vectors: Iterable[tuple[str, Vector]]) -> None:
        """Add vectors by key; the keys must not be there."""
        keys, rows = zip(*vectors, strict=True)
        ids = [next(self._next_id) for _ in keys]
        if partition not in self._partitions:
            self._partitions[partition] = self._empty()
        self._partitions[partition].add_with_ids(np.stack(rows), np.array(ids))
        self._ids.update(zip(keys, ids, strict=True))
        self._keys.update(zip(ids, keys, strict=True))

    def remove(self, partition: bytes, keys: Iterable[str]) -> None:
        """Remove keys; those that are not there are passed over."""
        ids = [found for key in keys if (found := self._ids.pop(key, None)) is not None]
        if not ids:
            return
        for removed in ids:
            del self._keys[removed]
        index = self._partitions[partition]
        if len(ids) == index.ntotal:
            del self._partitions[partition]
        else:
            index.remove_ids(faiss.IDSelectorBatch(np.array(ids, np.int64)))

    def nearest(self, partition: bytes, vector: Vector, count: int) -> list[tuple[str, float]]:
        """Up to `count` (key, cosine similarity) of a partition, nearest first."""
        index = self._partitions.get(partition)
        if index is None:
            return []
        similarities, ids = index.search(vector[None], min(count, index.ntotal))
        return [
            (self._keys[int(found)], min(max(float(score), 0.0), 1.0))
            for found, score in zip(ids[0], similarities[0], strict=True)
        ]

    def _empty(self) -> faiss.IndexIDMap:
        kind = faiss.ScalarQuantizer.QT_fp16
        # FAISS's Python layer keeps a reference from the map to what it maps, so both live equally long.
        return faiss.IndexIDMap(faiss.IndexScalarQuantizer(self._dimension, kind, faiss.METRIC_INNER_PRODUCT))
