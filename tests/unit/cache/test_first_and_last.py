"""Loading at the start of the cache, and the last writes when it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.cache import __main__ as service
from services.cache.config import CacheSettings
from services.cache.database import Database
from services.cache.entries import Entry, now_ms
from services.cache.file_store import FileStore, open_store
from services.cache.servicer import CacheServicer
from services.cache.tombstones import Removal
from tests.stores import at_work
from tests.unit.cache.asking import NEVER
from tests.unit.cache.conftest import OpenCache, identity, memory

QUESTIONS = [identity(text) for text in ("one", "two", "six")]


def on_disk(path: Path) -> dict[str, int]:
    """How often each entry of a file was used, by its key."""
    return {entry.key: entry.uses for entry, _ in Database(str(path)).load("bag of words", 0)}


async def test_entries_that_do_not_fit_in_memory_at_load_leave_the_disk(open_cache: OpenCache, tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    before = open_cache(path)
    for question in QUESTIONS:
        await before.answers.store(question, b"yes", 10_000, NEVER)
        before.clock.ms += 1
    await before.close()
    small = memory(max_entries=2)
    async with at_work(FileStore(Database(str(path)), small, "bag of words", 0, 10**6, before.clock)):
        held = {entry.key for entry in small.entries}
    small.close()
    assert len(held) == 2
    assert on_disk(path).keys() == held


async def test_uses_since_the_last_sweep_are_written_at_the_end(tmp_path: Path) -> None:
    path, question = tmp_path / "cache.db", QUESTIONS[0]
    settings = CacheSettings(database=str(path), embedder="none", sweep_interval_ms=60_000)
    async with service.assemble(settings) as servicers:
        servicer = servicers[cache_pb2.DESCRIPTOR.services_by_name["CacheService"]]
        assert isinstance(servicer, CacheServicer)
        await servicer._answers.store(question, b"yes", 10_000, NEVER)
        for _ in range(3):
            await servicer._answers.lookup(question, 1, NEVER)
    assert on_disk(path) == {question.key: 4}


async def test_a_cache_without_a_database_opens_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqlite3.connect", None)
    held, (one, other, _) = memory(), QUESTIONS
    async with open_store(CacheSettings(database=""), held, "engine", now_ms) as store, at_work(store):
        for question in (one, other):
            asked, ends_ms = question.asked.encode(), now_ms() + 10_000
            entry = Entry(question.key, question.tenant, question.partition, asked, b"yes", ends_ms, now_ms())
            assert await store.insert(entry, None, store.sequence)
        assert await store.remove(Removal(key=one.key)) == 1
        assert [entry.key for entry in held.entries] == [other.key]
    held.close()
