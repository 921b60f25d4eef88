"""The file holds the verification records of the last sweep."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from services.cache.database import Database
from services.cache.file_store import FileStore
from services.cache.semantic_match import record, rules
from services.cache.semantic_match.thresholds import Thresholds, made_by
from services.cache.semantic_match.traffic import Traffic
from services.cache.tombstones import Removal
from tests.stores import at_work
from tests.unit.cache.conftest import Clock, memory

ACME, GLOBEX = Traffic("acme"), Traffic("globex")

DEFAULT, ALLOWED = 0.95, 0.01


@asynccontextmanager
async def opened(path: Path, made_by: str = "cosine") -> AsyncIterator[tuple[FileStore, Thresholds]]:
    kept = Thresholds(DEFAULT, ALLOWED, made_by)
    held = memory(thresholds=kept)
    store = FileStore(Database(str(path)), held, "engine", 0, 10**6, Clock())
    try:
        async with at_work(store):
            yield store, kept
    finally:
        held.close()


def verify(kept: Thresholds, tenant: str, count: int = 200, right: bool = True, category: str = "") -> None:
    traffic = Traffic(tenant, category)
    for _ in range(count):
        for candidate in (True, False, False, False):
            kept.look_up(traffic, candidate)
        kept.verify(traffic, 0.99, True, right)


def run(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Run a statement on the file; its rows."""
    with closing(sqlite3.connect(path)) as file, file:
        return file.execute(sql).fetchall()


async def test_a_process_that_is_killed_between_two_sweeps_loses_what_came_since_the_last_one(tmp_path: Path) -> None:
    path, copy = tmp_path / "cache.db", tmp_path.with_suffix(".killed")
    async with opened(path) as (store, kept):
        verify(kept, "acme")
        store.sweep([], [])
        await store.remove(Removal(key="0"))  # comes after it
        found = kept.of(ACME)
        verify(kept, "acme", right=False)
        assert kept.of(ACME) > found
        await asyncio.to_thread(shutil.copytree, tmp_path, copy)
    async with opened(copy / "cache.db") as (_, kept):
        assert kept.of(ACME) == found < DEFAULT
        assert kept.measured.samples == 200
        verify(kept, "globex", 1)
        assert kept.measured.samples == 201


async def test_a_broken_row_gives_its_tenant_the_default_and_changes_no_other_tenant(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "cache.db"
    async with opened(path) as (store, kept):
        for tenant in ("acme", "globex"):
            verify(kept, tenant)
        store.sweep([], [])
    run(path, "UPDATE verified_traffic SET samples = 'nonsense' WHERE tenant = 'acme'")
    with caplog.at_level(logging.WARNING):
        async with opened(path) as (store, kept):
            assert (kept.of(ACME), kept.of(GLOBEX) < DEFAULT) == (DEFAULT, True)
            verify(kept, "acme")
            store.sweep([], [])
    assert caplog.text.count("the verification record of tenant 'acme' is damaged, and is dropped") == 1
    async with opened(path) as (_, kept):
        assert kept.of(ACME) < DEFAULT


async def test_only_so_many_tenants_are_kept_those_with_the_latest_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RECORDS", 2)
    monkeypatch.setattr("services.cache.file_store.RECORDS", 2)
    path = tmp_path / "cache.db"
    async with opened(path) as (store, kept):
        for number in range(5):
            verify(kept, str(number))
            store._now_ms.ms += 1  # type: ignore[attr-defined]
            store.sweep([], [])
            await store.remove(Removal(key="0"))
    assert run(path, "SELECT tenant FROM verified_traffic ORDER BY tenant") == [("",), ("3",), ("4",)]


async def test_without_verification_the_default_is_in_force_and_removals_are_done(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    async with opened(path) as (store, kept):
        for tenant in ("acme", "globex"):
            verify(kept, tenant)
        store.sweep([], [])
    async with opened(path, made_by="") as (store, kept):
        assert kept.of(ACME) == DEFAULT
        await store.remove(Removal(tenant="acme"))
    async with opened(path) as (_, kept):
        assert (kept.of(ACME), kept.of(GLOBEX) < DEFAULT) == (DEFAULT, True)


def test_samples_of_another_engine_default_or_rules_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [made_by(0.95, "engine"), made_by(0.95, "another"), made_by(0.9, "engine")]
    assert made_by(0.95, "engine") == named[0]
    monkeypatch.setattr(rules, "RULES_VERSION", "next")
    assert len({*named, made_by(0.95, "engine")}) == 4


CHAT, DOSAGES, THEIRS = Traffic("acme", "chat"), Traffic("acme", "dosages"), Traffic("globex", "dosages")


async def test_a_tenant_with_very_many_categories_takes_no_others_row(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    async with opened(path) as (store, kept):
        for tenant in ("acme", "globex"):
            verify(kept, tenant, category="dosages")
        store.sweep([], [])
        found = kept.of(DOSAGES)
        for again in range(3):
            for number in range(record.RECORDS):
                kept.verify(Traffic("mallory", f"{again} {number}"), 0.99, True, True)
            store._now_ms.ms += 1  # type: ignore[attr-defined]
            store.sweep([], [])
            await store.remove(Removal(key="0"))
    assert run(path, "SELECT count(*) FROM verified_traffic") == [(record.RECORDS + 1,)]
    async with opened(path) as (_, kept):
        assert kept.of(DOSAGES) == kept.of(THEIRS) == found < DEFAULT
