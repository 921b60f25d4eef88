"""A sweep writes down what was used, and deletes what memory let go of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pytest

from services.cache.database import Database, Statement
from services.cache.entries import Entry
from services.cache.errors import NotKept
from services.cache.file_store import FileStore
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from services.cache.tombstones import Removal
from services.runtime.errors import Exhausted
from tests.stores import at_work
from tests.unit.cache.conftest import DIMENSION, Clock, memory

ALL = Removal(tenant="acme")


class Recording(Database):
    """Has the statements of each commit, by their first two words."""

    broken = False

    def __init__(self) -> None:
        super().__init__("")
        self.commits: list[list[str]] = []

    def apply(self, statements: Iterable[Statement]) -> None:
        run = list(statements)
        self.commits.append([" ".join(sql.split()[:2]) for sql, _ in run])
        if self.broken:
            raise OSError("the disk is full")
        super().apply(run)


@pytest.fixture
def held() -> Iterator[Memory]:
    held = memory(thresholds=Thresholds(0.95, 0.01, "cosine"))
    yield held
    held.close()


def made(held: Memory, file: Database) -> FileStore:
    return FileStore(file, held, "engine", 0, 10**6, Clock())


def an_entry(key: str) -> Entry:
    return Entry(key, "acme", b"", b"why?", b"because", 2_000_000, 1_000_000)


def on_disk(file: Database) -> dict[str, tuple[int, int, float]]:
    return {each.key: (each.used_at_ms, each.uses, each.priority) for each, _ in file.load("engine", 0)}


async def test_uses_and_worth_are_written_and_only_what_is_gone_is_deleted(held: Memory) -> None:
    file = Recording()
    store = made(held, file)
    used, kept, gone = map(an_entry, ("used", "kept", "gone"))
    async with at_work(store):
        for each in (used, kept, gone):
            await store.insert(each, None, 10**18)
        untouched = on_disk(file)
        used.used_at_ms, used.uses, used.priority = 1_000_500, 3, 2.5
        store.sweep([(used, 2)], [gone])
        await store.tighten("kept", "acme", 0.5)  # is written after it
        assert on_disk(file) == {"used": (1_000_500, 3, 2.5), "kept": untouched["kept"]}


async def test_a_sweep_without_news_writes_nothing(held: Memory) -> None:
    file = Recording()
    store = made(held, file)
    async with at_work(store):
        before = len(file.commits)
        store.sweep([], [])
    assert [commit for commit in file.commits[before:] if commit] == []


@pytest.mark.parametrize("broken", [False, True])
async def test_uses_wait_for_the_disk_once_and_are_written_again_when_it_has_answered(
    held: Memory, broken: bool
) -> None:
    file = Recording()
    store = made(held, file)
    entry = an_entry("used")
    await store.load()
    file.commits.clear()
    for _ in range(3):
        store.sweep([(entry, 1)], [])
    running = asyncio.create_task(store.run())
    file.broken = broken
    with suppress(NotKept):
        await store.remove(Removal(key="none"))
    assert [commit.count("UPDATE entries") for commit in file.commits] == [1]
    file.broken = False
    store.sweep([(entry, 1)], [])
    await store.remove(Removal(key="none"))
    assert [commit.count("UPDATE entries") for commit in file.commits] == [1, 1]
    running.cancel()
    await asyncio.wait([running])
    await store.close()


async def test_removals_of_callers_that_left_count_while_they_wait_for_the_disk(held: Memory) -> None:
    store = made(held, Recording())
    await store.load()  # and does not run: the disk stands still
    left = [asyncio.create_task(store.remove(Removal(f"{number}", "acme"))) for number in range(300)]
    await asyncio.sleep(0)
    for removing in left:
        removing.cancel()
    await asyncio.wait(left)
    with pytest.raises(Exhausted):
        await store.remove(Removal("k", "acme"))
    theirs = asyncio.create_task(store.remove(Removal("k", "globex")))
    running = asyncio.create_task(store.run())
    assert await theirs == 0
    assert await store.remove(Removal("k", "acme")) == 0
    running.cancel()
    await asyncio.wait([running])
    await store.close()


async def test_samples_are_written_once_and_later_ones_with_the_next_write(held: Memory) -> None:
    file = Recording()
    store = made(held, file)
    await store.load()
    file.commits.clear()
    for tenant in ("acme", "globex"):
        held.thresholds.verify(Traffic(tenant, ""), 0.99, True, True)
        store.sweep([], [])
    running = asyncio.create_task(store.run())
    await store.remove(Removal(key="none"))
    assert tenants(file) == {"", "acme"}
    store.sweep([], [])
    await store.remove(Removal(key="none"))
    assert tenants(file) == {"", "acme", "globex"}
    running.cancel()
    await asyncio.wait([running])
    await store.close()


def tenants(file: Database) -> set[str]:
    return {traffic.name for traffic, _ in file.verified("cosine")}


@pytest.mark.parametrize("ends", [lambda memory: memory.expire(2_000_000), lambda memory: memory.remove(ALL)])
async def test_many_conversations_that_go_at_once_are_one_job_of_the_index(
    held: Memory, ends: Callable[[Memory], object]
) -> None:
    vector = np.eye(1, DIMENSION, dtype=np.float32)[0]
    for number in range(9):
        entry = an_entry(f"{number}")
        entry.partition = b"%d" % number  # as each conversation has its own
        held.put(entry, vector)
    await held.settled()
    with patch.object(held._vectors_thread, "submit", wraps=held._vectors_thread.submit) as submit:
        ends(held)
    assert submit.call_count == 1
    await held.settled()
    assert held._vectors is not None
    assert len(held._vectors) == 0
