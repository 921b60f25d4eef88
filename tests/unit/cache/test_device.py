"""The device that clusters large partitions. There is no GPU here: FAISS's GPU functions are replaced by recorders that
compute on the CPU."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
import pytest

from services.cache import device
from services.cache.device import CPU
from services.cache.ivf_index import Lists, Rows
from services.cache.rebuild import centroids

DIMENSION = 16


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of FAISS's GPU functions in order, on a machine with one simulated GPU."""
    noted: list[Any] = []

    class NotedResources:
        def setTempMemory(self, size: int) -> None:
            noted.append(("memory", size))

        def setPinnedMemory(self, size: int) -> None:
            noted.append(("pinned", size))

    def noted_copy(resources: NotedResources, number: int, index: Any) -> Any:
        noted.append(("copy", type(resources), number, index.ntotal))
        return index

    monkeypatch.setattr(faiss, "StandardGpuResources", NotedResources, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", noted_copy, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1)
    noted.append(NotedResources)
    return noted


def rows(count: int) -> Rows:
    drawn = np.random.default_rng(1).standard_normal((count, DIMENSION), np.float32)
    found: Rows = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return found


def test_a_faiss_without_gpus_computes_on_the_cores() -> None:
    assert device.load() == CPU


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("gpus", [0, 1])
def test_a_gpu_is_used_where_there_is_one(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: gpus)
    assert device.load().gpu == bool(gpus)


def test_centroids_are_found_and_compared_with_on_the_first_gpu(noted: list[Any]) -> None:
    resources, vectors = noted.pop(), rows(2_000)
    cuda = device.load()
    found = centroids(vectors, 20, cuda)
    lists = Lists(DIMENSION, found, cuda)
    reserved = [("memory", 64 * 1024 * 1024), ("pinned", 0)]
    assert noted == [*reserved, ("copy", resources, 0, 0), *reserved, ("copy", resources, 0, len(found))]
    lists.add(np.arange(2_000), vectors)
    lists.remove(np.arange(10))
    assert [number for number, _ in lists.search(vectors[42], 1)] == [42]
    assert 5 not in [number for number, _ in lists.search(vectors[5], 8)]


def test_small_partitions_and_cores_ask_nothing_of_a_gpu(noted: list[Any]) -> None:
    noted.clear()
    Lists(DIMENSION, None, device.load())
    assert noted == []
    Lists(DIMENSION, centroids(rows(500), 10, CPU), CPU)
    assert noted == []
