"""What is kept on disk: over a restart, and when the disk stands still or refuses."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from services.cache import file_store
from services.cache.answers import LookupResult, Verdict
from services.cache.database import Database, Statement
from services.cache.entries import Entry
from services.cache.errors import Conflict, NotKept
from services.cache.group_commit import GroupCommit
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.tombstones import Removal
from services.runtime.errors import Exhausted
from tests.unit.cache.asking import CAPITAL, NEVER, REWORDED, look_up, store
from tests.unit.cache.conftest import OpenCache, identity, memory
from tests.waiting import until


@pytest.fixture
def on_disk(open_cache: OpenCache, tmp_path: Path) -> OpenCache:
    """Opens a cache that keeps a file."""
    return partial(open_cache, tmp_path / "cache.db")


async def test_a_restart_knows_what_was_used_last(on_disk: OpenCache) -> None:
    before = on_disk()
    for text in ("one", "two", "six"):
        await store(before, identity(text))
        before.clock.ms += 1
    await look_up(before, identity("one"))
    before.answers.sweep()
    after = await before.restarted(max_entries=2)
    assert (await look_up(after, identity("two"), 1)).verdict is Verdict.MISS
    assert (await look_up(after, identity("one"), 1)).verdict is Verdict.EXACT


async def test_a_start_with_less_room_holds_what_fits_alone(
    on_disk: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, alive = on_disk(), list[int]()
    for number in range(8):
        await store(before, identity(f"question {number}"))
    held = memory(max_entries=1)
    load = held.load

    def counted(*given: Any) -> list[Entry]:
        alive.append(sum(type(each) is Entry for each in gc.get_objects()))
        return load(*given)

    monkeypatch.setattr(file_store, "_LOADED_AT_ONCE", 1)
    monkeypatch.setattr(held, "load", counted)
    await file_store.FileStore(before.database, held, "none", 0, 10**6, before.clock).load()
    held.close()
    assert len(alive) == 8
    assert max(alive) - min(alive) <= 2


async def test_vectors_of_another_engine_are_not_compared(on_disk: OpenCache) -> None:
    before = on_disk()
    await store(before, CAPITAL)
    with patch("tests.unit.cache.conftest.BagOfWords.name", "another"):
        after = await before.restarted()
    assert (await look_up(after, REWORDED)).verdict is Verdict.MISS
    assert (await look_up(after, CAPITAL)).verdict is Verdict.EXACT


async def test_a_stale_answer_survives_a_restart_and_is_still_no_hit(on_disk: OpenCache) -> None:
    before = on_disk(stale_ms=50)
    await store(before, CAPITAL, ttl_ms=100)
    before.clock.ms += 149
    after = await before.restarted()
    assert (await look_up(after, CAPITAL)).stale
    assert await look_up(after, REWORDED) == LookupResult(Verdict.MISS)
    after.clock.ms += 1
    assert len((await after.restarted()).answers.entries) == 0


async def test_an_answer_that_was_kept_long_enough_is_gone_from_the_disk_too(
    on_disk: OpenCache, tmp_path: Path
) -> None:
    before = on_disk()
    await store(before, CAPITAL, ttl_ms=100)
    before.clock.ms += 100
    before.answers.sweep()
    await before.close()
    assert list(Database(str(tmp_path / "cache.db")).load("bag of words", 0)) == []


async def test_writes_that_wait_for_a_stalled_disk_are_bounded(open_cache: OpenCache) -> None:
    bench, goes_on = open_cache(), threading.Event()
    apply = bench.database.apply
    with patch.object(bench.database, "apply", side_effect=lambda statements: (goes_on.wait(10), apply(statements))):
        flood = [asyncio.create_task(store(bench, identity(f"{number}"), b"x" * 50_000)) for number in range(40)]
        theirs = asyncio.create_task(store(bench, identity("a question", tenant="globex")))
        await until(lambda: sum(task.done() for task in flood) == 40 - 9)  # half of a million bytes
        for task in flood:
            task.cancel()  # a cancelled store frees nothing
        ended = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(outcome, Exhausted) for outcome in ended) == 40 - 9
        with pytest.raises(Exhausted):
            await store(bench, identity("one more"), b"x" * 50_000)
        assert not theirs.done()
        goes_on.set()
        await theirs
    await store(bench, identity("one more"), b"x" * 50_000)


async def test_an_answer_that_was_begun_in_an_earlier_life_is_not_stored(on_disk: OpenCache) -> None:
    before = on_disk()
    await before.store.load()
    epoch = before.answers.epoch
    await before.answers.remove(Removal(tenant="acme"))
    later = before.answers.epoch
    before.clock.ms -= 10_000  # a clock that was put back
    after = await before.restarted()
    await after.store.load()
    for known in (epoch, later):
        with pytest.raises(Conflict):
            await after.answers.store(CAPITAL, b"Paris", 10_000, NEVER, known)
    await after.answers.store(CAPITAL, b"Paris", 10_000, NEVER, after.answers.epoch)
    assert (await look_up(after, CAPITAL)).verdict is Verdict.EXACT


class FullDisk:
    """In the place of a connection: each write is refused."""

    def __init__(self, connection: sqlite3.Connection):
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith(("BEGIN", "DELETE")):
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(sql, *parameters)


def test_a_file_of_this_version_is_opened_without_a_write(tmp_path: Path) -> None:
    path, log = tmp_path / "cache.db", tmp_path / "cache.db-wal"
    Database(str(path)).close()
    file = Database(str(path))  # on a disk that is full, maybe
    assert not log.exists() or not log.stat().st_size
    file.close()


async def test_a_start_with_a_full_disk_serves_what_is_on_it(on_disk: OpenCache, tmp_path: Path) -> None:
    before = on_disk()
    await store(before, CAPITAL)
    await store(before, identity("a question"), ttl_ms=1)
    before.clock.ms += 1
    await before.close()
    file = Database(str(tmp_path / "cache.db"))
    file._connection = FullDisk(file._connection)  # type: ignore[assignment]
    held = memory(thresholds=Thresholds(0.95, max_wrong=0.01, made_by="cosine"))
    after = file_store.FileStore(file, held, "none", 0, 10**6, before.clock)
    await after.load()
    assert [entry.key for entry in held.entries] == [CAPITAL.key]
    await after.close()
    held.close()


async def test_a_store_the_disk_refuses_is_an_error_and_is_not_served(open_cache: OpenCache) -> None:
    bench = open_cache()
    full = sqlite3.OperationalError("database or disk is full")
    with patch.object(bench.database, "apply", side_effect=full), pytest.raises(NotKept):
        await store(bench, CAPITAL)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    await store(bench, CAPITAL)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT


async def test_an_answer_that_the_disk_refuses_as_its_vector_is_indexed_is_not_served(
    open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, writes = open_cache(), list[asyncio.Future[None]]()
    append = GroupCommit.append

    def noted(self: GroupCommit, statement: Statement) -> asyncio.Future[None]:
        writes.append(append(self, statement))
        return writes[-1]

    async def settled(_: Memory) -> None:
        while not writes[-1].done():
            await asyncio.sleep(0)

    monkeypatch.setattr(GroupCommit, "append", noted)
    monkeypatch.setattr(Memory, "settled", settled)
    with patch.object(bench.database, "apply", side_effect=sqlite3.OperationalError), pytest.raises(NotKept):
        await store(bench, CAPITAL)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS


async def test_an_answer_that_the_disk_refuses_after_its_caller_has_left_is_not_served(open_cache: OpenCache) -> None:
    bench = open_cache()
    left = threading.Event()

    def full(statements: object) -> None:
        left.wait(5)
        raise sqlite3.OperationalError("database or disk is full")

    with patch.object(bench.database, "apply", side_effect=full) as refused:
        storing = asyncio.create_task(store(bench, CAPITAL))
        await until(lambda: refused.called)
        storing.cancel()
        await asyncio.wait([storing])
        assert storing.cancelled()
        left.set()
        await until(lambda: not bench.answers.entries.held(CAPITAL.key), within_s=2)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
