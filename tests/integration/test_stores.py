"""What every place where entries are kept promises, whichever it is: each backend of the table has to pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.cache.config import STORES, CacheSettings
from services.cache.entries import Entry, now_ms
from services.cache.errors import Conflict
from services.cache.keyed_question import KeyedQuestion
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.traffic import Traffic
from services.cache.store import Store, opener
from services.cache.tombstones import Removal
from tests.redis import PATIENT_MS, redis_server
from tests.stores import at_work
from tests.unit.cache.conftest import identity, memory

CAPITAL, OTHER = identity("what is the capital of france"), identity("an entirely unrelated thing")
THEIRS = identity(CAPITAL.asked, tenant="globex")
Open = Callable[..., AbstractAsyncContextManager[tuple[Store, Memory]]]


@pytest.fixture(params=sorted(STORES))
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the store, as often as a test likes."""
    async with redis_server(tmp_path) as redis:
        settings = CacheSettings(
            store=request.param,
            database=str(tmp_path / "cache.db"),
            redis_url=redis.url,
            redis_timeout_ms=PATIENT_MS,
        )

        @asynccontextmanager
        async def open_store(made_by: str = "engine") -> AsyncIterator[tuple[Store, Memory]]:
            held = memory(thresholds=Thresholds(0.95, max_wrong=0.01, made_by=made_by))
            async with opener(request.param)(settings, held, "engine", now_ms) as store:
                try:
                    async with at_work(store):
                        yield store, held
                finally:
                    held.close()

        yield open_store


async def test_a_stored_entry_is_served_at_once_and_after_a_restart(open_store: Open) -> None:
    async with open_store() as (store, memory):
        assert not store.local
        assert await store.insert(_entry(CAPITAL), None, store.sequence)
        assert _held(memory) == {CAPITAL.key}
    async with open_store() as (_, memory):
        assert _held(memory) == {CAPITAL.key}


async def test_a_removed_entry_is_gone_at_once_and_after_a_restart(open_store: Open) -> None:
    async with open_store() as (store, memory):
        for question in (CAPITAL, OTHER, THEIRS):
            await store.insert(_entry(question), None, store.sequence)
        assert [await store.remove(Removal(key=CAPITAL.key)) for _ in range(2)] == [1, 0]
        assert _held(memory) == {OTHER.key, THEIRS.key}
        assert [await store.remove(Removal(tenant="acme")) for _ in range(2)] == [1, 0]
        assert _held(memory) == {THEIRS.key}
    async with open_store() as (_, memory):
        assert _held(memory) == {THEIRS.key}


async def test_an_entry_is_removed_for_its_own_tenant_alone(open_store: Open) -> None:
    async with open_store() as (store, memory):
        await store.insert(_entry(CAPITAL), None, store.sequence)
        assert await store.remove(Removal(CAPITAL.key, "globex")) == 0
        assert _held(memory) == {CAPITAL.key}
    async with open_store() as (store, memory):
        assert _held(memory) == {CAPITAL.key}
        assert await store.remove(Removal(CAPITAL.key, "acme")) == 1
        assert _held(memory) == set()
    async with open_store() as (store, memory):
        assert _held(memory) == set()
        epoch = store.sequence
        await store.remove(Removal(CAPITAL.key, "globex"))  # of what is not there yet
        assert await store.insert(_entry(CAPITAL), None, epoch)


async def test_a_tightened_entry_stays_so_until_its_removal_and_for_its_tenant_alone(open_store: Open) -> None:
    async with open_store() as (store, memory):
        await store.insert(_entry(CAPITAL), None, store.sequence)
        assert not await store.tighten(CAPITAL.key, "globex", 0.9)
        assert not await store.tighten(OTHER.key, "acme", 0.9)
        for least_score in (0.9, 0.8):
            assert await store.tighten(CAPITAL.key, "acme", least_score)
            assert _tightness(memory) == {CAPITAL.key: 0.9}
        await store.insert(_entry(CAPITAL), None, store.sequence)
        assert _tightness(memory) == {CAPITAL.key: 0.9}
    async with open_store() as (store, memory):
        assert _tightness(memory) == {CAPITAL.key: 0.9}
        await store.remove(Removal(key=CAPITAL.key))
        await store.insert(_entry(CAPITAL), None, store.sequence)
        assert _tightness(memory) == {CAPITAL.key: 0.0}


async def test_thresholds_outlast_a_restart_and_a_removal_forgets_its_tenant(
    open_store: Open,
) -> None:
    acme, globex = Traffic("acme"), Traffic("globex")
    theirs, ours = Traffic("globex", "dosages"), Traffic("acme", "dosages")
    async with open_store() as (store, memory):
        for traffic, right in ((acme, True), (globex, False), (theirs, False), (ours, True)):
            _verify(memory.thresholds, traffic, right)
        store.sweep([], [])
        found = {traffic: memory.thresholds.of(traffic) for traffic in (acme, globex, theirs, ours)}
        assert found[acme] < 0.95 < found[globex]
        await _swept(store)
    async with open_store() as (store, memory):
        assert {traffic: memory.thresholds.of(traffic) for traffic in found} == found
        assert memory.thresholds.measured.samples == 800
        await store.remove(Removal(tenant="globex"))
        assert memory.thresholds.of(globex) == memory.thresholds.of(theirs) == 0.95
    async with open_store() as (_, memory):
        assert memory.thresholds.of(globex) == memory.thresholds.of(theirs) == 0.95
        assert [memory.thresholds.of(traffic) for traffic in (acme, ours)] == [found[acme], found[ours]]
    async with open_store("another engine") as (_, memory):
        assert memory.thresholds.of(acme) == 0.95
        assert memory.thresholds.measured.samples == 0


@pytest.mark.parametrize("removal", [Removal(key=CAPITAL.key), Removal(tenant="acme"), Removal(CAPITAL.key, "acme")])
async def test_only_an_insert_begun_before_a_removal_is_a_conflict(open_store: Open, removal: Removal) -> None:
    async with open_store() as (store, memory):
        epoch = store.sequence
        await store.remove(removal)
        assert store.sequence > epoch
        with pytest.raises(Conflict):
            await store.insert(_entry(CAPITAL), None, epoch)
        assert await store.insert(_entry(THEIRS), None, epoch)
        assert _held(memory) == {THEIRS.key}
    async with open_store() as (store, memory):
        assert store.sequence > epoch
        with pytest.raises(Conflict):
            await store.insert(_entry(CAPITAL), None, epoch)
        assert await store.insert(_entry(CAPITAL), None, store.sequence)
        assert _held(memory) == {CAPITAL.key, THEIRS.key}


@pytest.mark.parametrize(
    ("given", "used"), [({}, "file"), ({"redis_url": "redis://x"}, "redis"), ({"store": "file"}, "file")]
)
def test_which_store_is_used(given: dict[str, str], used: str) -> None:
    assert CacheSettings(**given).store_used == used


@pytest.mark.parametrize("given", [{"store": "redis"}, {"store": "paper"}])
def test_a_store_that_cannot_be_used_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="store"):
        CacheSettings(**given)


def _verify(thresholds: Thresholds, traffic: Traffic, right: bool) -> None:
    for _ in range(200):
        for candidate in (True, False, False, False):
            thresholds.look_up(traffic, candidate)
        thresholds.verify(traffic, 0.99, True, right)


async def _swept(store: Store) -> None:
    """The records of a sweep are written. A removal comes after it."""
    for _ in range(3):
        await store.remove(Removal(key=OTHER.key))


def _entry(question: KeyedQuestion) -> Entry:
    asked, now = question.asked.encode(), now_ms()
    return Entry(question.key, question.tenant, question.partition, asked, b"Paris", now + 600_000, now)


def _held(memory: Memory) -> set[str]:
    return {entry.key for entry in memory.entries}


def _tightness(memory: Memory) -> dict[str, float]:
    return {entry.key: entry.least_score for entry in memory.entries}
