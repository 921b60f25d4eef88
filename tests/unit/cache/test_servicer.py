"""proto ↔ domain."""

from __future__ import annotations

from typing import Any

import pytest
from google.rpc import code_pb2

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from services.cache.errors import Conflict
from services.runtime.errors import InvalidInput
from services.runtime.rpc.boundary import to_status
from tests.unit.cache.asking import ANSWER, CALL, served
from tests.unit.cache.conftest import OpenCache, question

QUESTION = question("what is the capital of france")
CUT = cache_pb2.Answer(text="Paris.", model="demo", finish_reason=chat_pb2.FINISH_REASON_BUDGET)


@pytest.mark.parametrize(
    ("method", "wrong", "field"),
    [
        ("Store", cache_pb2.StoreRequest(question=QUESTION, answer=CUT), "answer.finish_reason"),
        ("Store", cache_pb2.StoreRequest(question=QUESTION, answer=ANSWER, ttl_ms=-1), "ttl_ms"),
        ("Lookup", cache_pb2.LookupRequest(question=question("")), "question.messages[0].content"),
        ("Lookup", cache_pb2.LookupRequest(question=QUESTION, min_similarity=0.2), "min_similarity"),
        ("Invalidate", cache_pb2.InvalidateRequest(), "target"),
        ("Embed", cache_pb2.EmbedRequest(texts=["fine", " "]), "texts[1]"),
    ],
)
async def test_a_request_that_cannot_be_served_is_refused_by_its_field(
    open_cache: OpenCache, method: str, wrong: object, field: str
) -> None:
    servicer = served(open_cache())
    with pytest.raises(InvalidInput) as refused:
        await getattr(servicer, method)(wrong, CALL)
    assert refused.value.metadata["field"] == field


@pytest.mark.parametrize(("stale_ms", "has_stale"), [(50, True), (0, False)])
async def test_an_expired_answer_is_returned_as_stale_and_never_as_the_answer(
    open_cache: OpenCache, stale_ms: int, has_stale: bool
) -> None:
    bench = open_cache(stale_ms=stale_ms)
    servicer = served(bench)
    asked = question("what is the capital of france")
    await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER, ttl_ms=100), CALL)
    hit = await servicer.Lookup(cache_pb2.LookupRequest(question=asked), CALL)
    assert (hit.answer, hit.HasField("stale")) == (ANSWER, False)
    bench.clock.ms += 100
    miss = await servicer.Lookup(cache_pb2.LookupRequest(question=asked, min_similarity=1), CALL)
    expected = cache_pb2.LookupResponse(
        verdict=cache_pb2.VERDICT_MISS, key=hit.key, epoch=hit.epoch, stale=ANSWER if has_stale else None
    )
    assert miss == expected


async def test_an_answer_that_was_damaged_is_a_miss_once_and_gone(open_cache: OpenCache) -> None:
    bench = open_cache()
    servicer = served(bench)
    asked, alike = question("what is the capital of france please"), question("what is the capital of france really")
    await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER), CALL)
    (entry,) = bench.answers.entries
    entry.answer = b"\xff damaged"
    near = cache_pb2.LookupRequest(question=alike, min_similarity=0.5)
    missed = await servicer.Lookup(near, CALL)
    assert (missed.verdict, missed.HasField("answer")) == (cache_pb2.VERDICT_MISS, False)
    assert not list(bench.answers.entries)
    await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER, epoch=missed.epoch), CALL)
    assert (await servicer.Lookup(near, CALL)).answer == ANSWER


@pytest.mark.parametrize("by_key", [True, False])
async def test_an_answer_that_was_begun_before_an_invalidation_is_not_stored_after_it(
    open_cache: OpenCache, by_key: bool
) -> None:
    servicer = served(open_cache())
    asked, theirs = question("what is the capital of france"), question("what is that", tenant="globex")
    miss = await servicer.Lookup(cache_pb2.LookupRequest(question=asked), CALL)
    removed = {"key": miss.key} if by_key else {"tenant": "acme"}
    await servicer.Invalidate(cache_pb2.InvalidateRequest(**removed), CALL)
    late = cache_pb2.StoreRequest(question=asked, answer=ANSWER, epoch=miss.epoch)
    with pytest.raises(Conflict):
        await servicer.Store(late, CALL)
    again = await servicer.Lookup(cache_pb2.LookupRequest(question=asked), CALL)
    assert again.verdict == cache_pb2.VERDICT_MISS
    await servicer.Store(cache_pb2.StoreRequest(question=theirs, answer=ANSWER, epoch=miss.epoch), CALL)
    await servicer.Store(cache_pb2.StoreRequest(question=asked, answer=ANSWER, epoch=again.epoch), CALL)
    for kept in (asked, theirs):
        found = await servicer.Lookup(cache_pb2.LookupRequest(question=kept), CALL)
        assert found.verdict == cache_pb2.VERDICT_EXACT


async def test_the_epoch_of_a_watch_covers_the_removals_that_it_sent(open_cache: OpenCache) -> None:
    bench = open_cache()
    servicer = served(bench)
    watch: Any = servicer.WatchInvalidations(cache_pb2.WatchInvalidationsRequest(), CALL)
    began = await anext(watch)
    await servicer.Invalidate(cache_pb2.InvalidateRequest(tenant="acme"), CALL)
    assert (await anext(watch)).epoch > began.epoch > 0
    await watch.aclose()


def test_a_store_that_was_overtaken_is_not_to_be_tried_again() -> None:
    status = to_status(Conflict())
    assert status.code == code_pb2.ABORTED
    assert not Conflict.retryable
