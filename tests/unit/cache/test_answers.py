"""The cache itself, with a clock moved by hand."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from services.cache.answers import LookupResult, Verdict
from services.cache.database import Database
from services.cache.errors import Conflict, EmbeddingTooLate, NotKept
from services.cache.keyed_question import KeyedQuestion
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted
from tests.unit.cache.conftest import Bench, OpenCache, identity
from tests.waiting import until

NEVER = Deadline.never()
CAPITAL = identity("what is the capital of france please")
REWORDED = identity("what is the capital of france really")


async def store(bench: Bench, question: KeyedQuestion, answer: bytes = b"Paris", ttl_ms: int = 10_000) -> None:
    await bench.answers.store(question, answer, ttl_ms, NEVER)


async def look_up(bench: Bench, question: KeyedQuestion, threshold: float = 0.8) -> LookupResult:
    return await bench.answers.lookup(question, threshold, NEVER)


async def answer_to(bench: Bench, question: KeyedQuestion, threshold: float = 0.8) -> bytes | None:
    """The answer of a hit."""
    found = await look_up(bench, question, threshold)
    return found.entry and found.entry.answer


async def test_an_exact_hit_never_touches_the_embedder(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    bench.engine.embedded.clear()
    found = await bench.answers.lookup(CAPITAL, 0.8, Deadline.after(0))
    assert (found.verdict, found.entry and found.entry.answer) == (Verdict.EXACT, b"Paris")
    assert bench.engine.embedded == []


@pytest.mark.parametrize(
    ("threshold", "verdict", "compared"),
    [(0.8, Verdict.SEMANTIC, True), (0.99, Verdict.MISS, True), (1, Verdict.MISS, False)],
)
async def test_a_near_question_is_a_hit_from_the_threshold_on_and_a_threshold_of_1_compares_nothing(
    open_cache: OpenCache, threshold: float, verdict: Verdict, compared: bool
) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    found = await look_up(bench, REWORDED, threshold)
    assert found.verdict is verdict
    assert (0.8 <= found.similarity < 0.99) if compared else found.similarity is None


async def test_a_near_question_with_other_facts_is_refused(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, identity("what is 7 plus 5"))
    found = await look_up(bench, identity("what is 7 plus 6"), threshold=0.5)
    assert (found.verdict, found.refused) == (Verdict.MISS, "numbers differ")
    assert bench.answers.stats.refused == 1


async def test_a_refused_neighbour_does_not_hide_the_right_one(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, identity("what is 7 plus 5 please"), b"12")
    await store(bench, identity("please tell me now what is 7 plus 6"), b"13")
    assert await answer_to(bench, identity("what is 7 plus 6 please"), threshold=0.5) == b"13"


@pytest.mark.parametrize(
    "other",
    [
        identity(REWORDED.asked, tenant="globex"),
        identity(REWORDED.asked, attachments=["sha256:1"]),
    ],
)
async def test_semantic_hits_stay_within_their_partition(open_cache: OpenCache, other: KeyedQuestion) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    assert (await look_up(bench, other)).verdict is Verdict.MISS


async def test_a_text_too_long_to_embed_is_found_exactly_and_never_semantically(open_cache: OpenCache) -> None:
    bench = open_cache()
    long = identity("what is the capital of france " * 20)
    await store(bench, long)
    await store(bench, CAPITAL)
    assert (await look_up(bench, long)).verdict is Verdict.EXACT
    assert (await look_up(bench, identity(long.asked + " please"))).verdict is Verdict.MISS


async def test_a_lookup_whose_time_is_over_before_it_could_compare_is_too_late(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL)
    with pytest.raises(EmbeddingTooLate):
        await bench.answers.lookup(REWORDED, 0.8, Deadline.after(0))


async def test_an_expired_entry_is_neither_an_exact_nor_a_semantic_hit(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL, ttl_ms=100)
    bench.clock.ms += 99
    assert (await look_up(bench, CAPITAL)).ttl_ms == 1
    bench.clock.ms += 1
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    assert (await look_up(bench, REWORDED)).verdict is Verdict.MISS
    bench.answers.sweep()
    assert len(bench.answers.entries) == 0
    assert bench.answers.stats.expirations == 1


async def test_an_answer_whose_time_is_over_comes_with_the_miss_of_its_very_question_alone(
    open_cache: OpenCache,
) -> None:
    bench = open_cache(stale_ms=50)
    await store(bench, CAPITAL, ttl_ms=100)
    bench.clock.ms += 100
    for _ in range(2):  # before the sweep and after it
        found = await look_up(bench, CAPITAL)
        assert (found.verdict, found.entry) == (Verdict.MISS, None)
        assert found.stale
        assert found.stale.answer == b"Paris"
        reworded = await look_up(bench, REWORDED)
        assert (reworded.verdict, reworded.stale) == (Verdict.MISS, None)
        bench.answers.sweep()
    bench.clock.ms += 50
    assert (await look_up(bench, CAPITAL)).stale is None
    assert (bench.answers.stats.exact_hits, bench.answers.stats.semantic_hits) == (0, 0)


async def test_an_answer_whose_time_is_just_over_is_a_hit_for_who_wants_it_and_nothing_is_compared(
    open_cache: OpenCache,
) -> None:
    bench = open_cache(stale_ms=500)
    await store(bench, CAPITAL, ttl_ms=100)
    good = await bench.answers.lookup(CAPITAL, 0.8, NEVER, stale_within_ms=50)
    assert (good.ttl_ms, good.expired_ms) == (100, 0)
    bench.engine.embedded.clear()
    for over_ms, told_ms in ((0, 1), (49, 50), (0, 50)):
        bench.clock.ms += over_ms + (100 if told_ms == 1 else 0)
        found = await bench.answers.lookup(CAPITAL, 0.8, Deadline.after(0), stale_within_ms=50)
        assert (found.verdict, found.entry and found.entry.answer, found.ttl_ms) == (Verdict.EXACT, b"Paris", 0)
        assert 0 < found.expired_ms <= 50
        assert bench.engine.embedded == []
    bench.clock.ms += 2
    late = await bench.answers.lookup(CAPITAL, 0.8, NEVER, stale_within_ms=50)
    assert (late.verdict, late.expired_ms) == (Verdict.MISS, 0)
    assert (await bench.answers.lookup(REWORDED, 0.8, NEVER, stale_within_ms=500)).verdict is Verdict.MISS
    await bench.answers.remove(Removal(key=CAPITAL.key))
    assert (await bench.answers.lookup(CAPITAL, 0.8, NEVER, stale_within_ms=500)).verdict is Verdict.MISS


async def test_a_lapsed_entry_does_not_hide_a_near_question_that_is_good(open_cache: OpenCache) -> None:
    bench = open_cache(stale_ms=10_000)
    for tabs in range(1, 20):  # more than are compared, all of them nearer
        await store(bench, identity("what is the capital" + "\t" * tabs + "of france really"), ttl_ms=100)
    bench.clock.ms += 100
    bench.answers.sweep()
    await store(bench, identity("what is the capital of france please"), b"good")
    assert await answer_to(bench, identity("really what is the capital of france")) == b"good"


async def test_a_stale_answer_goes_with_its_tenant_and_when_room_is_needed(open_cache: OpenCache) -> None:
    bench = open_cache(stale_ms=10_000, max_entries=2)
    await store(bench, CAPITAL, ttl_ms=100)
    await store(bench, identity("another thing"))
    bench.clock.ms += 100
    bench.answers.sweep()
    await look_up(bench, identity("another thing"))
    await store(bench, identity("one more thing", tenant="globex"), ttl_ms=1)
    assert (await look_up(bench, CAPITAL)).stale is None
    bench.clock.ms += 1
    assert (await look_up(bench, identity("one more thing", tenant="globex"))).stale
    assert await bench.answers.remove(Removal(tenant="globex")) == 1
    assert (await look_up(bench, identity("one more thing", tenant="globex"))).stale is None


async def test_watchers_hear_of_an_entry_when_its_time_is_over_and_not_again(open_cache: OpenCache) -> None:
    bench = open_cache(stale_ms=50)
    with bench.answers.watchers.watch() as removals:
        await store(bench, CAPITAL, ttl_ms=100)
        for _ in range(3):
            bench.clock.ms += 50
            bench.answers.sweep()
        bench.answers.watchers.close()
        assert [removal async for removal in removals] == [Removal(key=CAPITAL.key)]
    assert bench.answers.stats.expirations == 1


async def test_an_evicted_entry_is_gone_from_the_index_too(open_cache: OpenCache) -> None:
    bench = open_cache(max_entries=1)
    await store(bench, CAPITAL)
    await store(bench, identity("an entirely unrelated thing"))
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    assert bench.answers.stats.evictions == 1


async def test_a_second_store_replaces_the_first(open_cache: OpenCache) -> None:
    bench = open_cache()
    await store(bench, CAPITAL, b"Lyon")
    await store(bench, CAPITAL, b"Paris")
    for question in (CAPITAL, REWORDED):
        assert await answer_to(bench, question) == b"Paris"


async def test_removing_a_tenant_leaves_the_others(open_cache: OpenCache) -> None:
    bench = open_cache()
    theirs = identity(CAPITAL.asked, tenant="globex")
    await store(bench, CAPITAL)
    await store(bench, theirs)
    assert await bench.answers.remove(Removal(tenant="acme")) == 1
    assert await bench.answers.remove(Removal(tenant="acme")) == 0
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    assert (await look_up(bench, REWORDED)).verdict is Verdict.MISS
    assert (await look_up(bench, theirs)).verdict is Verdict.EXACT


async def test_watchers_are_told_of_everything_that_may_no_longer_be_served(open_cache: OpenCache) -> None:
    bench = open_cache(max_entries=2)
    replaced, evicted, removed, expired = (identity(text) for text in ("one", "two", "three", "four"))
    with bench.answers.watchers.watch() as removals:
        await store(bench, replaced)
        await store(bench, replaced)
        await store(bench, evicted)
        await look_up(bench, replaced)
        await store(bench, removed)
        await bench.answers.remove(Removal(key=removed.key))
        await store(bench, expired, ttl_ms=1)
        bench.clock.ms += 1
        bench.answers.sweep()
        await bench.answers.remove(Removal(tenant="acme"))
        bench.answers.watchers.close()
        told = [removal async for removal in removals]
    keys = [Removal(key=question.key) for question in (replaced, evicted, removed, expired)]
    assert told == [*keys, Removal(tenant="acme")]


@pytest.fixture
def on_disk(open_cache: OpenCache, tmp_path: Path) -> OpenCache:
    """Opens a cache that keeps a file."""
    return partial(open_cache, tmp_path / "cache.db")


async def test_a_restart_finds_everything_and_embeds_nothing(on_disk: OpenCache) -> None:
    before = on_disk()
    await store(before, CAPITAL)
    after = await before.restarted()
    assert (await look_up(after, CAPITAL)).verdict is Verdict.EXACT
    assert (await look_up(after, REWORDED)).verdict is Verdict.SEMANTIC
    assert after.engine.embedded == [REWORDED.asked]


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


async def test_vectors_of_another_engine_are_not_compared(on_disk: OpenCache) -> None:
    before = on_disk()
    await store(before, CAPITAL)
    with patch("tests.unit.cache.conftest.BagOfWords.name", "another"):
        after = await before.restarted()
    assert (await look_up(after, REWORDED)).verdict is Verdict.MISS
    assert (await look_up(after, CAPITAL)).verdict is Verdict.EXACT


async def test_what_was_removed_or_expired_stays_gone_after_a_restart(on_disk: OpenCache) -> None:
    before = on_disk()
    await store(before, CAPITAL)
    await store(before, REWORDED, ttl_ms=1)
    await before.answers.remove(Removal(key=CAPITAL.key))
    before.clock.ms += 1
    assert len((await before.restarted()).answers.entries) == 0


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


@pytest.mark.parametrize("by_key", [True, False])
async def test_a_store_on_its_way_does_not_bring_back_what_is_invalidated_meanwhile(
    open_cache: OpenCache, by_key: bool
) -> None:
    bench = open_cache()
    theirs = identity(CAPITAL.asked, tenant="globex")
    storing = [asyncio.create_task(store(bench, question)) for question in (CAPITAL, theirs)]
    await asyncio.sleep(0)  # both wait for their embedding now
    await (bench.answers.remove(Removal(key=CAPITAL.key)) if by_key else bench.answers.remove(Removal(tenant="acme")))
    overtaken, kept = await asyncio.gather(*storing, return_exceptions=True)
    assert isinstance(overtaken, Conflict)
    assert kept is None
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    assert (await look_up(bench, theirs)).verdict is Verdict.EXACT
    await store(bench, CAPITAL)  # a later store succeeds
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT


async def test_what_waits_for_a_disk_that_stands_still_is_bounded(open_cache: OpenCache) -> None:
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


async def test_a_store_the_disk_refuses_is_an_error_and_is_not_served(open_cache: OpenCache) -> None:
    bench = open_cache()
    full = sqlite3.OperationalError("database or disk is full")
    with patch.object(bench.database, "apply", side_effect=full), pytest.raises(NotKept):
        await store(bench, CAPITAL)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS
    await store(bench, CAPITAL)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT


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
