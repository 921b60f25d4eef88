"""A stale hit, and the answer that is generated in the background."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.trace import Span

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Tenant
from services.gateway.admission.question import Question
from services.gateway.api.revalidation import Revalidation
from services.gateway.cache_eligibility.settings import HitSettings
from services.runtime.errors import Exhausted
from tests.unit.gateway.answer.scene import ACME, STORED, Scene
from tests.unit.gateway.scripted import ScriptedCache

pytestmark = pytest.mark.paused

EXPIRED = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=STORED, key="k", expired_ms=250)
ASKED = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is the capital of France?")
OTHER = replace(ACME, name="umbra")


def scene_of(revalidate_ms: int) -> Scene:
    scene = Scene(ScriptedCache(EXPIRED))
    scene.tenant = replace(scene.tenant, hits=HitSettings(revalidate_ms=revalidate_ms))
    return scene


async def finals(scene: Scene, resubmitted: list[bytes] | None) -> pb.Final:
    return await scene.answer(revalidate=None if resubmitted is None else resubmitted.append).give()


async def test_a_stale_answer_is_sent_at_once_and_generated_again():
    scene, resubmitted = scene_of(1_000), list[bytes]()
    final = await finals(scene, resubmitted)
    assert (final.text, final.cache.verdict, final.cache.stale) == (STORED.text, pb.CACHE_VERDICT_EXACT, True)
    decided = [(made.policy, made.action, made.reason) for made in final.decisions]
    assert ("cache", "stale", "expired 250 ms ago") in decided
    assert scene.cache.stale == [1_000]
    assert len(resubmitted) == 1
    assert len(scene.near) == 0  # each of them is looked up: the new one is soon there
    assert not scene.llms["small"].calls


@pytest.mark.parametrize(("revalidate_ms", "may"), [(0, True), (1_000, False)])
async def test_a_request_without_revalidation_accepts_no_stale_answer(revalidate_ms, may):
    scene = scene_of(revalidate_ms)
    await finals(scene, [] if may else None)
    assert scene.cache.stale == [0]


class Begun:
    """Answers that were begun; a test ends each of them."""

    def __init__(self) -> None:
        self.questions: list[tuple[Question, Tenant]] = []
        self.refusal: Exception | None = None
        self.closed = 0
        self.may_end = asyncio.Event()

    async def __call__(self, question: Question, tenant: Tenant, span: Span) -> pb.Final:
        self.questions.append((question, tenant))
        if self.refusal:
            raise self.refusal
        try:
            await self.may_end.wait()
            return pb.Final(text="Paris.")
        finally:
            self.closed += 1


@asynccontextmanager
async def revalidating(begun: Begun) -> AsyncIterator[Revalidation]:
    made = Revalidation(begun)
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0.01)
        assert not made._under_way


def question(**fields: Any) -> Question:
    return Question(pb.GenerateRequest(messages=[ASKED], **fields))


async def test_equal_questions_are_revalidated_once_at_a_time_for_each_tenant():
    begun = Begun()
    async with revalidating(begun) as made:
        for tenant in (ACME, ACME, OTHER):
            made.submit(question(), tenant, b"k")
            await asyncio.sleep(0)
        assert [tenant.name for _, tenant in begun.questions] == ["acme", "umbra"]
        begun.may_end.set()
        await asyncio.sleep(0.01)
        made.submit(question(), ACME, b"k")
        await asyncio.sleep(0.01)
    assert len(begun.questions) == begun.closed == 3


async def test_only_a_few_are_under_way_and_those_that_are_end_with_the_process():
    begun = Begun()
    async with revalidating(begun) as made:
        for number in range(100):
            made.submit(question(), ACME, bytes([number]))
        await asyncio.sleep(0.01)
        assert len(begun.questions) == 4
    assert begun.closed == 4


async def test_a_gateway_that_ends_begins_none():
    begun = Begun()
    async with revalidating(begun) as made:
        made.close()
        made.submit(question(), ACME, b"k")
        await asyncio.sleep(0.01)
    assert not begun.questions


async def test_slow_revalidations_of_one_tenant_leave_room_for_those_of_others():
    begun = Begun()
    async with revalidating(begun) as made:
        for tenant in (ACME, OTHER, replace(ACME, name="third")):
            for number in range(100):
                made.submit(question(), tenant, bytes([number]))
        await asyncio.sleep(0.01)
    assert Counter(tenant.name for _, tenant in begun.questions) == {"acme": 4, "umbra": 2, "third": 1}


async def test_a_revalidation_asks_the_same_question_at_low_priority():
    begun = Begun()
    asked = question(realtime=True, idempotency_key="i", budget_ms=5, attempt=0, tier=pb.TIER_FAST)
    async with revalidating(begun) as made:
        made.submit(asked, ACME, b"k")
        await asyncio.sleep(0.01)
    ((resubmitted, _),) = begun.questions
    assert resubmitted.request == pb.GenerateRequest(
        messages=[ASKED],
        tier=pb.TIER_FAST,
        single_attempt=True,
        attempt=1,
        cache=pb.CachePolicy(min_similarity=1, hit_chars_per_s=0),
    )
    assert asked.request.idempotency_key == "i"  # the request's own stays


async def test_a_refused_revalidation_may_be_submitted_again():
    begun = Begun()
    begun.refusal = Exhausted("over a quota")
    async with revalidating(begun) as made:
        for _ in range(2):
            made.submit(question(), ACME, b"k")
            await asyncio.sleep(0.01)
    assert len(begun.questions) == 2
