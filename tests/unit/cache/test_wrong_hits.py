"""A hit that was reported as wrong never comes again."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgerow.cache.v1 import cache_pb2
from services.cache import database
from services.cache.answers import Verdict
from services.cache.database import Database
from services.cache.entries import Entry
from services.cache.tombstones import Removal
from services.runtime.errors import InvalidInput
from tests.unit.cache.asking import CALL, CAPITAL, NEVER, REWORDED, answer_to, look_up, served, store
from tests.unit.cache.conftest import Bench, OpenCache, identity, question

NEARER = identity("what is the capital of france please please")  # than `REWORDED`
TOO_LONG = "what is " * 60


async def wrong(bench: Bench, asked: str | None, tenant: str = "acme", key: str = CAPITAL.key) -> bool:
    return await bench.answers.wrong(tenant, key, asked, NEVER)


async def test_a_question_that_got_a_wrong_answer_gets_it_no_more_and_nearer_ones_do(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    assert (await look_up(bench, REWORDED, 0.5)).verdict is Verdict.SEMANTIC
    assert await wrong(bench, REWORDED.asked)
    found = await look_up(bench, REWORDED, 0.5)
    assert (found.verdict, found.refused) == (Verdict.MISS, "reported as wrong")
    assert (await look_up(bench, NEARER, 0.5)).verdict is Verdict.SEMANTIC
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT


@pytest.mark.parametrize("asked", [None, TOO_LONG])
async def test_a_report_without_a_question_that_can_be_compared_leaves_the_exact_hit_alone(
    open_cache: OpenCache, asked: str | None
) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    assert await wrong(bench, asked)
    for alike in (REWORDED, NEARER):
        assert (await look_up(bench, alike, 0.5)).verdict is Verdict.MISS
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT


async def test_a_wrong_neighbour_does_not_hide_the_right_one(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL, b"Lyon")
    await store(bench, NEARER, b"Paris")
    await wrong(bench, None)
    assert await answer_to(bench, REWORDED, 0.5) == b"Paris"


async def test_a_report_on_another_tenants_entry_changes_nothing_and_reveals_nothing(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    bench.engine.embedded.clear()
    for key in (CAPITAL.key, "0" * 64):
        assert not await wrong(bench, REWORDED.asked, tenant="globex", key=key)
    assert bench.engine.embedded == []  # no time to be measured either
    assert (await look_up(bench, REWORDED)).verdict is Verdict.SEMANTIC


async def test_an_entry_stays_tight_when_its_answer_is_stored_again_and_is_loose_after_a_removal(
    open_cache: OpenCache,
) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    await asyncio.gather(store(bench, CAPITAL, b"Paris!"), wrong(bench, None))
    await store(bench, CAPITAL, b"Paris?")
    assert (await look_up(bench, REWORDED)).verdict is Verdict.MISS
    await bench.answers.remove(Removal(key=CAPITAL.key))
    await store(bench, CAPITAL)
    assert (await look_up(bench, REWORDED)).verdict is Verdict.SEMANTIC


async def test_an_entry_stays_tight_over_a_restart(open_cache: OpenCache, tmp_path: Path) -> None:
    before = open_cache(tmp_path / "cache.db")
    await store(before, CAPITAL)
    await wrong(before, REWORDED.asked)
    await store(before, CAPITAL, b"Paris!")
    after = await before.restarted()
    assert (await look_up(after, REWORDED)).verdict is Verdict.MISS
    assert (await look_up(after, NEARER)).verdict is Verdict.SEMANTIC
    await after.answers.remove(Removal(key=CAPITAL.key))
    await store(after, CAPITAL)
    again = await after.restarted()
    assert (await look_up(again, REWORDED)).verdict is Verdict.SEMANTIC


async def test_a_file_of_an_earlier_version_is_opened_and_that_version_goes_on_with_it(
    open_cache: OpenCache, tmp_path: Path
) -> None:
    """A downgrade keeps what was tightened, too: an older version writes entries by the position of their columns."""
    path = tmp_path / "cache.db"
    older = sqlite3.connect(path)
    marks = f"PRAGMA application_id = {database.APPLICATION_ID}; PRAGMA user_version = 1;"
    older.executescript(f"{database._SCHEMA} {marks} PRAGMA journal_mode = WAL;")
    row = (CAPITAL.key, "acme", CAPITAL.partition, CAPITAL.asked, b"Paris", 10**12, 1, "bag of words", None)
    older.execute(insert := "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    older.commit()
    older.close()
    bench = open_cache(path)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT
    await wrong(bench, None)
    await bench.close()
    older = sqlite3.connect(path)
    older.execute(insert, (*row[:4], b"Paris!", *row[5:]))
    older.commit()
    older.close()
    ((entry, _),) = Database(str(path)).load("bag of words", 0)
    assert (entry.answer, entry.least_score > 1) == (b"Paris!", True)


@settings(deadline=None)
@given(scores=st.lists(st.floats(0, 2), min_size=1))
def test_no_report_loosens_an_entry(scores: list[float]) -> None:
    file = Database("")
    entry = Entry("key", "acme", b"", b"what", b"Paris", 10**12, 1)
    file.apply([database.insert(entry, "engine", None, file.encryption)])
    for number, score in enumerate(scores, 1):
        entry.least_score = score
        file.apply([database.tighten(entry)])
        ((stored, _),) = file.load("engine", 0)
        assert stored.least_score == max(scores[:number])
    file.close()


async def test_the_contract_takes_a_report_of_the_tenants_own_question_alone(open_cache: OpenCache) -> None:
    servicer = served(bench := open_cache())
    await store(bench, CAPITAL)

    async def report(**fields: object) -> bool:
        request = cache_pb2.ReportVerdictRequest(**{"tenant": "acme", "key": CAPITAL.key, **fields})
        return (await servicer.ReportVerdict(request, CALL)).tightened

    for fields in (
        {"tenant": ""},
        {"key": "f"},
        {"question": question(REWORDED.asked, tenant="globex")},
        {"question": question(" ")},
    ):
        with pytest.raises(InvalidInput):
            await report(**fields)
    assert not await report(right=True)
    assert not await report(tenant="globex")
    assert (await look_up(bench, REWORDED)).verdict is Verdict.SEMANTIC
    assert await report(question=question(REWORDED.asked, tenant=""))
    assert (await look_up(bench, REWORDED)).verdict is Verdict.MISS
    assert bench.answers.stats.tightened == 1
