"""Which questions the cache stage looks up and stores, and what it reports of the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.cache_eligibility.settings import CategorySettings, HitSettings
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish

pytestmark = pytest.mark.paused

TODAY, MINE = "What happened in the news today?", "Where is my order?"
CALLING = chat_pb2.Message(role=chat_pb2.ROLE_ASSISTANT, tool_calls=[chat_pb2.ToolCall(id="1", name="clock")])
RESULT = chat_pb2.Message(role=chat_pb2.ROLE_TOOL, tool_call_id="1", content="12:30")


def asks(question: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=question)], **fields}


def scene_of(reply: cache_pb2.LookupResponse = MISS, **hits: Any) -> Scene:
    scene = Scene(ScriptedCache(reply))
    scene.tenant = replace(scene.tenant, hits=HitSettings(**hits))
    return scene


def decided(final: pb.Final) -> list[tuple[str, str, str]]:
    return [(made.policy, made.action, made.reason) for made in final.decisions if made.policy == "cache"]


@pytest.mark.parametrize(
    ("asked", "reason", "why"),
    [
        (asks(TODAY), "time_bound", "time_bound: the news"),
        (asks(MINE), "personal", "personal: my order"),
        (asks("Hi?", sampling=chat_pb2.Sampling(temperature=0.5)), "sampled", "sampled: a temperature of 0.5"),
    ],
)
async def test_a_question_of_a_kind_is_neither_looked_up_nor_stored_and_the_report_says_why(asked, reason, why):
    scene = scene_of(EXACT)
    final = await scene.final(**asked)
    assert (final.text, final.cache.verdict, final.cache.reason) == ("Paris.", pb.CACHE_VERDICT_BYPASS, reason)
    assert decided(final) == [("cache", "bypassed", why)]
    assert not scene.cache.questions
    assert not scene.write_behind.stored


@pytest.mark.parametrize(("others", "verdict"), [("off", pb.CACHE_VERDICT_BYPASS), ("exact", pb.CACHE_VERDICT_EXACT)])
async def test_settings_that_allow_no_more_are_a_reason_and_no_decision(others: Any, verdict: int):
    final = await scene_of(EXACT, others=others).final(**asks("Hi?"))
    assert (final.cache.verdict, final.cache.reason) == (verdict, "unasked")
    assert decided(final) == []


async def test_a_request_that_allows_the_kind_is_looked_up_and_stored():
    scene = scene_of()
    final = await scene.final(**asks(TODAY, cache=pb.CachePolicy(allow=[pb.QUESTION_KIND_TIME_BOUND])))
    assert (final.cache.verdict, final.cache.reason) == (pb.CACHE_VERDICT_MISS, "")
    assert not decided(final)
    assert scene.cache.similarities == [None]
    (stored,) = scene.write_behind.stored
    assert not stored.HasField("ttl_ms"), "without a category, the cache decides the lifetime"


async def test_a_question_for_exact_hits_is_looked_up_and_stored_as_exact():
    scene = scene_of(time_bound="exact")
    final = await scene.final(**asks(TODAY))
    assert decided(final) == [("cache", "exact", "time_bound: the news")]
    assert (final.cache.verdict, final.cache.reason) == (pb.CACHE_VERDICT_MISS, "time_bound")
    assert scene.cache.similarities == [1.0]
    (stored,) = scene.write_behind.stored
    assert stored.question.exact_only


async def test_a_language_that_the_embedder_does_not_know_is_the_reason_of_an_exact_lookup():
    scene = scene_of(cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, key=MISS.key, language="de"))
    final = await scene.final(**asks("Wie hoch ist mein Kontostand?"))
    assert decided(final) == [("cache", "exact", "language: de")]
    assert (final.cache.verdict, final.cache.reason) == (pb.CACHE_VERDICT_MISS, "language")
    (stored,) = scene.write_behind.stored
    assert not stored.question.exact_only, "the cache itself does not store the vector"


async def test_a_categorys_answers_are_kept_for_its_time_and_the_report_names_it():
    scene = scene_of(categories={"news": CategorySettings(words=("news",), ttl_ms=5_000)})
    final = await scene.final(**asks(TODAY))
    assert (final.cache.category, final.cache.reason) == ("news", "time_bound")
    (stored,) = scene.write_behind.stored
    assert (stored.ttl_ms, stored.question.category) == (5_000, "news")


async def test_a_category_says_how_many_hits_may_be_wrong_and_without_one_the_cache_does():
    strict = CategorySettings(words=("dose",), ttl_ms=5_000, max_wrong=0.001)
    scene = scene_of(categories={"dosages": strict, "news": CategorySettings(words=("news",), ttl_ms=5_000)})
    for asked in ("What is the dose for a child?", "Is that good news?", "Who wrote Faust?"):
        await scene.final(**asks(asked))
    assert scene.cache.max_wrong == [0.001, None, None]


async def test_equal_questions_at_a_time_share_one_answer_unless_it_is_drawn():
    for sampling, calls in ((None, 1), (chat_pb2.Sampling(temperature=1), 2)):
        scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(0.05, finish("It rains.")), large=ScriptedLlm())
        await asyncio.gather(*(scene.final(**asks(TODAY, sampling=sampling)) for _ in range(2)))
        assert len(scene.llms["small"].calls) == calls


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cache": pb.CachePolicy(bypass=True)}, "request"),
        ({"tools": [chat_pb2.Tool(name="f")]}, "tools"),
        ({"prefix": "Pa"}, "prefix"),
        ({"sampling": chat_pb2.Sampling(top_logprobs=0)}, "logprobs"),
        ({"sampling": chat_pb2.Sampling(top_logprobs=1)}, "logprobs"),
        ({"messages": [*asks("Time?")["messages"], CALLING, RESULT]}, "tools"),
    ],
)
async def test_a_private_question_is_neither_looked_up_nor_stored_nor_shared_and_the_report_says_why(fields, reason):
    scene = scene_of()
    finals = await asyncio.gather(*(scene.final(**fields) for _ in range(2)))
    assert [(each.cache.verdict, each.cache.reason) for each in finals] == [(pb.CACHE_VERDICT_BYPASS, reason)] * 2
    assert len(scene.llms["small"].calls) == 2
    assert not scene.cache.questions
    assert not scene.write_behind.stored


async def test_without_a_cache_that_is_the_reason():
    assert (await Scene().final()).cache.reason == "no_cache"


async def test_a_tenant_may_have_case_ignored_and_another_has_it_count():
    for ignored, calls in ((True, 1), (False, 2)):
        scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(0.05, finish("Paris.")), large=ScriptedLlm())
        scene.tenant = replace(scene.tenant, hits=HitSettings(ignore_case=ignored))
        await asyncio.gather(*(scene.final(**asks(question)) for question in ("Who is IT?", "who is it?")))
        assert len(scene.llms["small"].calls) == calls
        assert [question.ignore_case for question in scene.cache.questions] == 2 * [ignored]


@pytest.mark.parametrize(
    ("table", "writer", "stored"),
    [
        ("small=new large=x", "new", 1),
        ("small=new large=x", "old", 0),  # its service has not been exchanged yet
        ("small=old large=x", "new", 0),  # the table has not
        ("large=new", "new", 0),
        ("", "new", 1),  # no table says what it is
        ("small=new", "", 1),  # its service does not
    ],
)
async def test_an_answer_of_a_model_that_was_exchanged_is_not_stored(table, writer, stored):
    last = finish("Paris.")
    last.finish.identity = writer
    scene = Scene(
        ScriptedCache(MISS), ScriptedRoutes(identities={"": table}), small=ScriptedLlm(last), large=ScriptedLlm()
    )
    assert (await scene.final()).text == "Paris."
    assert len(scene.write_behind.stored) == stored
