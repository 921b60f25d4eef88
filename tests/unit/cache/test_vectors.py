"""The nearest vectors of a partition."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from services.cache.vectors import Vector, VectorIndex
from tests.unit.cache.conftest import DIMENSION, identity, memory

AXES = np.eye(4, dtype=np.float32)


def test_the_nearest_come_first_with_their_cosine() -> None:
    index = VectorIndex(4)
    between = (AXES[0] + AXES[1]) / np.sqrt(2, dtype=np.float32)
    index.add(b"p", [("x", AXES[0]), ("between", between), ("opposite", -AXES[0])])
    near = index.nearest(b"p", AXES[0], 8)
    assert [key for key, _ in near] == ["x", "between", "opposite"]
    assert [similarity for _, similarity in near] == pytest.approx([1, 2**-0.5, 0], abs=1e-3)


def test_removed_vectors_are_not_found_may_return_and_an_empty_partition_is_gone() -> None:
    index = VectorIndex(4)
    index.add(b"p", [("x", AXES[0]), ("y", AXES[1])])
    assert (index.nearest(b"q", AXES[0], 8), b"q" in index) == ([], False), (
        "a search of one partition finds vectors of another"
    )
    index.remove(b"p", ["x", "never added"])
    assert index.nearest(b"p", AXES[0], 8) == [("y", 0)]
    index.remove(b"p", ["y"])
    assert b"p" not in index
    index.add(b"p", [("x", AXES[1])])
    assert index.nearest(b"p", AXES[1], 8) == [("x", 1)]


async def test_a_search_waits_for_few_of_another_tenants() -> None:
    searched: list[bytes] = []

    class Noting(VectorIndex):
        def nearest(self, partition: bytes, vector: Vector, count: int) -> list[tuple[str, float]]:
            searched.append(partition)
            return super().nearest(partition, vector, count)

    held, vector = memory(index=Noting(DIMENSION)), np.zeros(DIMENSION, np.float32)
    theirs, mine = identity("theirs"), identity("mine", tenant="globex")
    await asyncio.gather(*(held.nearest(each, vector, 8) for each in [*100 * [theirs], mine]))
    assert searched.index(mine.partition) in range(4)
    held.close()
