"""The cache itself, with a clock moved by hand."""

from __future__ import annotations

import asyncio
import threading

import pytest

from services.cache.answers import Verdict
from services.cache.entries import Entry
from services.cache.errors import Conflict, EmbeddingTooLate
from services.cache.keyed_question import KeyedQuestion
from services.cache.tombstones import Removal
from services.runtime.deadline import Deadline
from tests.unit.cache.asking import CAPITAL, NEVER, REWORDED, answer_to, look_up, store
from tests.unit.cache.conftest import OpenCache, identity
from tests.waiting import until


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


async def test_a_question_is_compared_with_one_that_is_being_indexed(open_cache: OpenCache) -> None:
    bench, index = open_cache(), threading.Event()
    bench.answers._memory._vectors_thread.submit(index.wait)
    storing = asyncio.create_task(store(bench, CAPITAL))
    await until(lambda: bench.answers.entries.held(CAPITAL.key))
    looking = asyncio.create_task(look_up(bench, REWORDED, 0.8))
    await until(lambda: looking.done() or REWORDED.asked in bench.engine.embedded)
    index.set()
    assert (await looking).verdict is Verdict.SEMANTIC
    await storing


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
    "other", [identity(REWORDED.asked, tenant="globex"), identity(REWORDED.asked, attachments=["sha256:1"])]
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


async def test_a_lookup_without_time_to_embed_is_too_late(open_cache: OpenCache) -> None:
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


async def test_an_expired_answer_comes_with_the_miss_of_its_exact_question_alone(open_cache: OpenCache) -> None:
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


async def test_an_expired_answer_is_a_hit_within_the_stale_time_and_nothing_is_compared(open_cache: OpenCache) -> None:
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


async def test_however_many_entries_expire_at_once_no_watch_ends_and_no_sweep_is_long(open_cache: OpenCache) -> None:
    bench, count = open_cache(stale_ms=50, watch_queue=10, max_entries=2_000), 1_200
    for number in range(count):
        bench.answers.entries.put(Entry(f"{number}", "acme", b"", b"why?", b"", bench.clock.ms + 100, bench.clock.ms))
    with bench.answers.watchers.watch() as removals:
        for _ in range(2):
            bench.clock.ms += 100
            assert [bench.answers.sweep() for _ in range(3)] == [True, True, False]
        bench.answers.watchers.close()
        assert [removal async for removal in removals] == []
    assert (bench.answers.stats.expirations, len(bench.answers.entries)) == (count, 0)


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


async def test_watchers_get_every_removal_of_what_may_no_longer_be_served(open_cache: OpenCache) -> None:
    bench = open_cache(max_entries=2)
    replaced, evicted, removed = (identity(text) for text in ("one", "two", "three"))
    with bench.answers.watchers.watch() as removals:
        await store(bench, replaced)
        await store(bench, replaced)
        await store(bench, evicted)
        await look_up(bench, replaced)
        await store(bench, removed)
        await bench.answers.remove(Removal(key=removed.key))
        await bench.answers.remove(Removal(tenant="acme"))
        bench.answers.watchers.close()
        received = [removal async for removal in removals]
    keys = [Removal(key=question.key) for question in (replaced, removed)]
    assert received == [*keys, Removal(tenant="acme")]


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
