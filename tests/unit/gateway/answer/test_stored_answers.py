"""Answers that are looked up in the cache and stored there."""

from __future__ import annotations

import asyncio

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.runtime.errors import InvalidInput, TooLate, Unavailable
from tests.unit.gateway.answer.scene import EXACT, MISS, STORED, Scene, outcomes
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused


async def test_a_question_that_the_cache_refuses_goes_past_it_and_costs_the_cache_nothing():
    scene = Scene(ScriptedCache(InvalidInput("question", "at most 9 bytes", "10 bytes")))
    for _ in range(20):
        final = await scene.final()
        assert (final.text, final.cache.verdict) == ("Paris.", pb.CACHE_VERDICT_BYPASS)
        assert (outcomes(final)["cache"], final.cache.reason) == ("SKIPPED", "too_large")
        assert [stage.detail for stage in final.stages if stage.name == "cache"] == [
            "question: at most 9 bytes, got 10 bytes"
        ]
        assert ("fallback", "bypassed") in [(made.policy, made.action) for made in final.decisions]
    assert scene.breaker.would_admit()
    assert not scene.write_behind.stored
    assert len(scene.cache.questions) == 20


async def test_a_complete_answer_is_stored_under_its_tenant_and_class():
    scene = Scene(ScriptedCache(MISS))
    await scene.messages(tier=pb.TIER_QUALITY)
    (stored,) = scene.write_behind.stored
    assert (stored.question.tenant, stored.question.model_class) == ("acme", "tier:quality")
    assert stored.answer.text == "Paris."


async def test_answers_of_another_model_of_the_same_name_are_for_other_questions():
    keys = []
    for identities in (
        {"small": "weights 1", "": "1"},
        {"small": "weights 2", "": "1"},
        {"small": "weights 1", "": "2"},
    ):
        scene = Scene(ScriptedCache(MISS), ScriptedRoutes(identities=identities))
        await scene.messages(model="small")
        await scene.messages()
        keys.append([tuple(question.attachments) for question in scene.cache.questions])
    assert keys[0][0] == keys[2][0] != keys[1][0]
    assert keys[0][1] == keys[1][1] != keys[2][1]


@pytest.mark.parametrize(("asked", "kept"), [(None, 0), (3_000, 0), (4, 0), (3, 1)])
async def test_an_answer_that_was_cut_is_stored_where_the_request_has_cut_it(asked: int | None, kept: int):
    cut = finish("Par", chat_pb2.FINISH_REASON_LENGTH)  # after three tokens
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(cut), large=ScriptedLlm(cut))
    await scene.messages(sampling=chat_pb2.Sampling(max_tokens=asked))
    assert len(scene.write_behind.stored) == kept


async def test_an_answer_is_stored_with_what_the_cache_knew_before_it_was_begun():
    cache = ScriptedCache(MISS)
    scene = Scene(cache)
    await scene.messages()
    cache.outcome = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, epoch=7, key="k")
    await scene.messages(tier=pb.TIER_FAST)
    cache.outcome = Unavailable("cache: UNAVAILABLE")
    await scene.messages(tier=pb.TIER_QUALITY)
    assert [(known.epoch, known.key) for known in scene.write_behind.known] == [(0, ""), (7, "k"), (7, "")]


async def test_a_joined_reader_stores_the_answer_with_the_epoch_from_before_it_began():
    cache = ScriptedCache(cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, epoch=7))
    scene = Scene(cache, small=ScriptedLlm(text("Pa"), 0.02, finish("ris.")))
    leaving = sent_by(scene.answer().give)
    while not scene.llms["small"].calls:
        await anext(leaving)
    cache.outcome = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, epoch=8)
    staying = asyncio.create_task(scene.final())
    await asyncio.sleep(0.005)
    await leaving.aclose()
    await staying
    assert (len(scene.llms["small"].calls), [known.epoch for known in scene.write_behind.known]) == (1, [7])


async def test_an_exact_hit_answers_without_a_model_and_is_kept_near():
    scene = Scene(ScriptedCache(EXACT))
    final = await scene.final()
    assert (final.text, final.cache.verdict, final.cache.key) == ("Paris.", pb.CACHE_VERDICT_EXACT, "k")
    assert not scene.llms["small"].calls
    assert not scene.write_behind.stored
    assert scene.billed == [0]
    (message,) = await scene.messages()  # the near copy: everything in one message, no lookup
    assert [event.WhichOneof("kind") for event in message.events] == ["accepted", "stage", "delta", "final"]
    assert len(scene.cache.questions) == 1


async def test_an_equal_question_at_once_gets_the_answer_that_is_being_stored():
    scene = Scene(ScriptedCache(MISS))
    scene.write_behind.keeps_pending = True
    await scene.final()
    again = await scene.final()
    assert (again.text, again.cache.verdict) == ("Paris.", pb.CACHE_VERDICT_EXACT)
    assert len(scene.write_behind.stored) == 1


async def test_a_semantic_hit_is_not_kept_near():
    hit = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_SEMANTIC, answer=STORED, key="k", similarity=0.96)
    scene = Scene(ScriptedCache(hit))
    assert (await scene.final()).cache.verdict == pb.CACHE_VERDICT_SEMANTIC
    await scene.final()
    assert len(scene.cache.questions) == 2


@pytest.mark.parametrize(
    ("failure", "outcome"), [(TooLate("cache: late"), "OVERRUN"), (Unavailable("cache: gone"), "FAILED")]
)
async def test_a_cache_that_fails_costs_a_note_and_nothing_else(failure, outcome):
    final = await Scene(ScriptedCache(failure)).final()
    assert final.text == "Paris."
    assert outcomes(final)["cache"] == outcome
    assert final.cache.verdict == pb.CACHE_VERDICT_UNAVAILABLE
    assert not final.degraded


async def test_a_broken_cache_is_left_out_after_some_calls():
    scene = Scene(ScriptedCache(Unavailable("cache: gone")))
    finals = [await scene.final() for _ in range(6)]
    assert [outcomes(final)["cache"] for final in finals] == ["FAILED"] * 5 + ["SKIPPED"]
    assert finals[-1].decisions[0].policy == "breaker"


async def test_a_lookup_that_cannot_even_begin_is_no_probe_that_never_ends():
    class Shut(ScriptedCache):
        def lookup(self, request, timeout_s, metadata):
            raise RuntimeError("the channel is closed")

    scene = Scene(Shut(MISS))
    permit = scene.breaker.enter()
    assert permit
    permit.throttled(0.001)
    await asyncio.sleep(0.01)
    scene.breaker.clock = scene.breaker._common.clock = lambda: float("inf")
    with pytest.raises(RuntimeError):
        await scene.messages()
    assert scene.breaker.would_admit("acme")


async def test_a_lookup_that_its_client_leaves_has_an_end_in_the_trace():
    class Silent(ScriptedCache):
        async def lookup(self, request, timeout_s, metadata) -> cache_pb2.LookupResponse:
            await asyncio.Event().wait()
            raise AssertionError

    answer = Scene(Silent(MISS)).answer()
    given = asyncio.create_task(answer.give())
    await asyncio.sleep(0.001)
    given.cancel()
    await asyncio.wait({given})
    await asyncio.sleep(0)
    assert [each.name for each in answer._ledger.final.stages] == ["router", "cache"]
