"""Rebuilds beside the lists that serve lose no vector, restore no removed one, and delay no search."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cache import partition as partitions
from services.cache import rebuild
from services.cache.entries import Entry
from services.cache.ivf_index import Lists, Rows, Vector
from services.cache.partition import Partition
from services.cache.rebuild import Rebuilds, centroids
from services.cache.tombstones import Removal
from services.cache.vectors import VectorIndex
from tests.examples import examples
from tests.unit.cache.conftest import identity, memory
from tests.waiting import until

DIMENSION = 16
FEW = 400


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small partitions count as large ones."""
    monkeypatch.setattr(partitions, "FEW", FEW)


class Between(Executor):
    """Runs each step at once, and before it what changes meanwhile."""

    def __init__(self, change: Callable[[], None]):
        self.change = change

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.change()
        done: Future[Any] = Future()
        done.set_result(work(*args, **kwargs))
        return done


class Model:
    """A partition, and what should be in it."""

    def __init__(self, seed: int):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.partition, self.held, self.next_id = Partition(DIMENSION), dict[int, Vector](), 0

    def add(self, count: int) -> None:
        rows = drawn(self.numbers, count)
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        self.partition.add(np.array(ids, np.int64), rows)
        self.held |= zip(ids, rows, strict=True)

    def remove(self, count: int) -> None:
        ids = self.random.sample(sorted(self.held), min(count, len(self.held)))
        for each in ids:
            del self.held[each]
        if ids:
            self.partition.remove(np.array(ids, np.int64))

    def change(self) -> None:
        self.add(self.random.randrange(1, 8))
        self.remove(self.random.randrange(12))
        self.check_some()

    def check_some(self) -> None:
        for each in self.random.sample(sorted(self.held), min(2, len(self.held))):
            found = self.partition.search(self.held[each], 3)
            assert found[0][0] == each
            assert found[0][1] == pytest.approx(1, abs=2e-3)
            assert {near for near, _ in found} <= self.held.keys()

    def check(self) -> None:
        assert sorted(self.ids()) == sorted(self.held)
        for _ in range(20):
            self.check_some()

    def ids(self) -> Iterator[int]:
        for lists in self.partition._held:
            for ids, _ in lists.blocks():
                yield from ids.tolist()


def drawn(numbers: np.random.Generator, count: int, dimension: int = DIMENSION) -> Rows:
    rows = numbers.standard_normal((count, dimension)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rebuilt(model: Model, change: Callable[[], None]) -> None:
    rebuilds = Rebuilds(Between(change))
    rebuilds.consider(model.partition)
    rebuilds._thread.shutdown()


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(FEW, 3 * FEW), blocks=st.integers(1, 300))
def test_changes_during_a_rebuild_are_neither_missed_nor_found_twice(seed: int, count: int, blocks: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.cache.ivf_index.Lists.blocks.__defaults__", (1, blocks))
        model = Model(seed)
        model.add(count)
        assert model.partition.due
        rebuilt(model, model.change)
        assert not model.partition.rebuilding
        assert len(model.partition._held) == 1
        model.check()


def test_a_partition_has_one_list_until_it_is_large_and_again_when_it_is_small() -> None:
    model = Model(1)
    model.add(FEW - 1)
    assert not model.partition.due
    model.add(1)
    rebuilt(model, lambda: None)
    assert [lists.count for lists in model.partition._held] == [80]
    model.add(FEW - 1)
    assert not model.partition.due
    model.add(1)
    rebuilt(model, lambda: None)
    assert model.partition._held[0].count > 80
    model.remove(FEW * 2 - FEW // 2 - 1)
    assert not model.partition.due
    model.remove(1)
    rebuilt(model, lambda: None)
    assert [lists.count for lists in model.partition._held] == [1]
    model.check()


def test_many_lists_find_the_near_ones_that_one_list_finds() -> None:
    numbers, dimension = np.random.default_rng(3), 64
    topics = np.repeat(drawn(numbers, 2_000, dimension), 5, axis=0)
    rows = topics + 0.5 * drawn(numbers, len(topics), dimension)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    one, many = Lists(dimension), Lists(dimension, centroids(rows, 400))
    for lists in (one, many):
        lists.add(np.arange(len(rows)), rows)
    wanted, found = ([{near for near, _ in lists.search(each, 5)} for each in topics[::50]] for lists in (one, many))
    assert sum(len(a & b) for a, b in zip(wanted, found, strict=True)) >= 0.98 * 5 * len(wanted)


def test_a_partition_whose_rebuild_fails_serves_from_its_old_lists(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(sample: Rows, count: int) -> Rows:
        raise MemoryError("no room")

    monkeypatch.setattr(rebuild, "centroids", fail)
    model = Model(4)
    model.add(2 * FEW)
    rebuilt(model, model.change)
    assert "stay in the lists" in caplog.text
    model.check()
    assert not model.partition.due  # until there are twice as many
    monkeypatch.setattr(rebuild, "centroids", centroids)
    model.add(3 * FEW)
    rebuilt(model, model.change)
    assert len(model.partition._held) == 1
    model.check()


def test_a_partition_emptied_during_a_rebuild_stays_empty() -> None:
    model = Model(5)
    model.add(FEW)
    rebuilt(model, lambda: model.remove(len(model.held)))
    assert len(model.partition) == 0


def test_closing_leaves_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    training, go_on = threading.Event(), threading.Event()

    def wait(sample: Rows, count: int, *_: Any) -> Rows:
        training.set()
        assert go_on.wait(10)
        return sample[:count]

    monkeypatch.setattr(rebuild, "centroids", wait)
    first, second = Model(6), Model(7)
    with ThreadPoolExecutor(1) as vectors_thread:
        rebuilds = Rebuilds(vectors_thread)
        for model in (first, second):
            model.add(FEW)
            rebuilds.consider(model.partition)
        assert training.wait(10)
        threading.Timer(0.05, go_on.set).start()
        rebuilds.close()
    first.check()
    second.check()
    assert [lists.count for lists in second.partition._held] == [1]


async def test_searches_and_changes_go_on_while_lists_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    training, go_on, made = threading.Event(), threading.Event(), centroids

    def wait(sample: Rows, count: int, *_: Any) -> Rows:
        training.set()
        assert go_on.wait(10)
        return made(sample, count)

    monkeypatch.setattr(rebuild, "centroids", wait)
    index = VectorIndex(DIMENSION)
    held = memory(10_000, 10**8, index=index)
    rows = drawn(np.random.default_rng(8), FEW + 1)
    try:
        for number in range(FEW):
            held.put(entry(number), rows[number])
        await asyncio.to_thread(training.wait, 10)
        asked = identity("anything")
        assert (await held.nearest(asked, rows[7], 1))[0][0] == "7"
        held.put(entry(FEW), rows[FEW])
        held.remove(Removal(key="7"))
        assert (await held.nearest(asked, rows[FEW], 1))[0][0] == str(FEW)
        assert (await held.nearest(asked, rows[7], 1))[0][0] != "7"
        go_on.set()
        made_again = index.partition(asked.partition)
        assert made_again
        await until(lambda: not made_again.rebuilding)
        assert (await held.nearest(asked, rows[FEW], 1))[0][0] == str(FEW)
        assert (await held.nearest(asked, rows[7], 1))[0][0] != "7"
        assert (await held.nearest(identity("anything", tenant="b"), rows[8], 1)) == []
    finally:
        go_on.set()
        held.close()


def entry(number: int) -> Entry:
    asked = identity("anything")
    return Entry(str(number), asked.tenant, asked.partition, b"?", b"", 10**13, 0)
