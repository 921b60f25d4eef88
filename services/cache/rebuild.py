"""Rebuilds a partition's inverted lists beside those that serve, on a thread of low priority.

Only the vectors' own thread reads and changes the partition, in steps of one or two milliseconds, between which
searches and changes go on. A vector that is removed meanwhile is removed from the new lists too, before they serve. A
vector that is added meanwhile waits in a list of its own, which is searched with the others, and is moved afterwards.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

import faiss
import numpy as np

from services.cache.device import CPU, Device
from services.cache.ivf_index import Block, Lists, Rows, scan_on_one_core
from services.cache.partition import Partition
from services.cache.priority import lower_priority

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NICE = 5  # until it is done searches read every vector: it must come to an end where all cores are busy
_PER_LIST = 32  # vectors that a centroid is made from: 200 MB for 4,096 centroids, for some seconds
_REMOVED_AT_ONCE = 500  # in a step
_ROUNDS = 10  # of k-means


class Rebuilds:
    """Rebuilds the lists of one partition after the other. `vectors_thread` has one thread."""

    def __init__(self, vectors_thread: Executor, device: Device = CPU):
        self._vectors_thread, self._device = vectors_thread, device
        self._thread = ThreadPoolExecutor(1, "rebuild", initializer=_begin)
        self._closing = False

    def consider(self, partition: Partition | None) -> None:
        """Rebuild a partition's lists where that is due. On the vectors' thread."""
        if partition is not None and partition.due and not self._closing:
            partition.rebuilding = True
            self._thread.submit(self._rebuild, partition)

    def close(self) -> None:
        """Leave what is not done. The vectors' thread must still run."""
        self._closing = True
        self._thread.shutdown(cancel_futures=True)

    def _rebuild(self, partition: Partition) -> None:
        try:
            self._replace(partition)
            for _ in self._steps(partition.fold):
                pass
        except CancelledError:
            return
        except Exception:  # out of memory, for one
            _log.exception("%d vectors stay in the lists that they are in", len(partition))
        self._step(partition.done)

    def _replace(self, partition: Partition) -> None:
        started = time.monotonic()
        sealed = self._step(partition.seal)
        made = self._trained(partition, sealed)
        for ids, rows in self._blocks(sealed):
            made.remove(ids)  # one that comes twice
            made.add(ids, rows)
        removed = self._step(partition.removed)
        while len(removed) > _REMOVED_AT_ONCE:
            made.remove(removed)
            removed = self._step(partition.removed)
        made.remove(removed)
        self._step(lambda: partition.replace(sealed, made))
        _log.info("%d vectors in %d lists after %.1f s", len(made), made.count, time.monotonic() - started)

    def _trained(self, partition: Partition, sealed: Sequence[Lists]) -> Lists:
        """Empty lists around the centroids of a sample, or just one."""
        count, held = self._step(lambda: (partition.lists, len(partition)))
        if count == 1:
            return Lists(partition.dimension)
        every = max(1, held // (_PER_LIST * count))
        sample = np.concatenate([rows for _, rows in self._blocks(sealed, every)]).astype(np.float32)
        return Lists(partition.dimension, centroids(sample, count, self._device), self._device)

    def _blocks(self, sealed: Sequence[Lists], every: int = 1) -> Iterator[Block]:
        return self._steps(lambda: chain.from_iterable(lists.blocks(every) for lists in sealed))

    def _steps(self, begin: Callable[[], Iterator[T]]) -> Iterator[T]:
        """The items of an iterator, each made on the vectors' thread."""
        items = begin()
        while some := self._step(lambda: list(islice(items, 1))):
            yield some[0]

    def _step(self, work: Callable[[], T]) -> T:
        if self._closing:
            raise CancelledError
        return self._vectors_thread.submit(work).result()


def _begin() -> None:
    scan_on_one_core()
    lower_priority(_NICE)


def centroids(sample: Rows, count: int, device: Device = CPU) -> Rows:
    """At most `count` centroids of unit length, of as many vectors or more, by k-means in two levels.

    The first level makes √n clusters for n centroids. The second divides each of them separately, in proportion to its
    vectors. For 4,096 centroids that is a thirtieth of the work of one k-means over all.
    """
    index = device.placed(faiss.IndexFlatIP(sample.shape[1]))  # once: on a GPU each copy reserves memory
    coarse = faiss.IndexFlatIP(sample.shape[1])
    coarse.add(_clusters(sample, max(1, round(count**0.5)), index))
    _, nearest = coarse.search(sample, 1)
    found: list[Rows] = []
    seen = made = 0
    for number in range(coarse.ntotal):
        part = sample[nearest[:, 0] == number]
        seen += len(part)
        wanted = min(round(count * seen / len(sample)) - made, len(part))
        if wanted > 0:
            found.append(_clusters(part, wanted, index))
            made += wanted
    return np.concatenate(found)


def _clusters(rows: Rows, count: int, index: faiss.Index) -> Rows:
    """Centroids of unit length; `index`, which may be on a GPU, compares vectors with them."""
    how = faiss.ClusteringParameters()
    how.niter, how.spherical, how.min_points_per_centroid = _ROUNDS, True, 1
    clustering = faiss.Clustering(rows.shape[1], count, how)
    clustering.train(rows, index)
    found: Rows = faiss.vector_to_array(clustering.centroids).reshape(count, -1)
    return found
