from __future__ import annotations

from contextlib import aclosing

import pytest
from opentelemetry.trace import INVALID_SPAN

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.router.v1 import router_pb2
from services.gateway.answer import Answer, Backends
from services.gateway.config import StageBudgets
from services.gateway.errors import ModelUnavailable
from services.gateway.ledger import Ledger
from services.gateway.near import NearCache
from services.gateway.plan import make_plan, text_stages
from services.runtime.errors import InvalidInput, TooLate, Unavailable
from tests.unit.gateway.scripted import (
    NotedAftermath,
    ScriptedCache,
    ScriptedLlm,
    ScriptedRoutes,
    finish,
    text,
)

MISS = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, similarity=0.4)
STORED = cache_pb2.Answer(text="Paris.", model="large", finish_reason=chat_pb2.FINISH_REASON_STOP)
EXACT = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_EXACT, answer=STORED, key="k", similarity=1, ttl_ms=9_000)


class Scene:
    """A gateway's backends, scripted, and one question to them."""

    def __init__(self, cache: ScriptedCache | None = None, routes: ScriptedRoutes | None = None, **llms: ScriptedLlm):
        self.cache, self.llms = (
            cache,
            llms or {"small": ScriptedLlm(text("Pa"), finish("ris.")), "large": ScriptedLlm()},
        )
        self.near, self.aftermath = NearCache(10, 30), NotedAftermath()
        self.near.watch_began()
        self.backends = Backends(cache, self.llms, routes or ScriptedRoutes(), self.near, self.aftermath)

    def answer(self, **fields: object) -> Answer:
        messages = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="What is the capital of France?")]
        request = pb.GenerateRequest(messages=messages, **fields)
        plan = make_plan(text_stages(StageBudgets(), cached=self.cache is not None), 1_000)
        return Answer(request, "acme", Ledger(plan, INVALID_SPAN, 0.01), self.backends)

    async def messages(self, **fields: object) -> list[pb.GenerateResponse]:
        return [message async for message in self.answer(**fields).messages()]

    async def events(self, **fields: object) -> list[pb.Event]:
        return [event for message in await self.messages(**fields) for event in message.events]

    async def final(self, **fields: object) -> pb.Final:
        return (await self.events(**fields))[-1].final


def outcomes(final: pb.Final) -> dict[str, str]:
    return {stage.name: pb.StageOutcome.Name(stage.outcome).removeprefix("STAGE_OUTCOME_") for stage in final.stages}


async def test_an_answer_is_accepted_then_text_then_final():
    events = await Scene(ScriptedCache(MISS)).events()
    assert [event.WhichOneof("kind") for event in events] == ["accepted", "delta", "delta", "final"]
    assert [planned.name for planned in events[0].accepted.plan] == ["cache", "router", "llm"]
    final = events[-1].final
    assert (final.text, final.model) == ("Paris.", "small")
    assert outcomes(final) == {"cache": "OK", "router": "OK", "llm": "OK"}
    assert final.cache.similarity == pytest.approx(0.4)
    assert not final.degraded


async def test_the_last_text_and_the_account_travel_together():
    messages = await Scene(ScriptedCache(MISS)).messages()
    assert [event.WhichOneof("kind") for event in messages[-1].events] == ["delta", "final"]


async def test_a_complete_answer_is_stored_under_its_tenant_and_class():
    scene = Scene(ScriptedCache(MISS))
    await scene.messages(tier=pb.TIER_QUALITY)
    (stored,) = scene.aftermath.stored
    assert (stored.question.tenant, stored.question.model_class) == ("acme", "tier:quality")
    assert stored.answer.text == "Paris."


async def test_an_exact_hit_answers_without_a_model_and_is_kept_near():
    scene = Scene(ScriptedCache(EXACT))
    final = await scene.final()
    assert (final.text, final.cache.verdict, final.cache.key) == ("Paris.", pb.CACHE_VERDICT_EXACT, "k")
    assert not scene.llms["small"].generations
    assert not scene.aftermath.stored
    (message,) = await scene.messages()  # the near copy: everything in one message, no lookup
    assert [event.WhichOneof("kind") for event in message.events] == ["accepted", "delta", "final"]
    assert len(scene.cache.questions) == 1


async def test_who_asks_again_at_once_gets_the_answer_that_is_being_stored():
    scene = Scene(ScriptedCache(MISS))
    scene.aftermath.keeps_pending = True
    await scene.final()
    again = await scene.final()
    assert (again.text, again.cache.verdict) == ("Paris.", pb.CACHE_VERDICT_EXACT)
    assert len(scene.aftermath.stored) == 1


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


async def test_without_a_table_the_first_model_stands_in_and_nothing_is_stored():
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(names=()))
    final = await scene.final()
    assert (final.model, list(final.degraded)) == ("small", ["router:unavailable"])
    assert not scene.aftermath.stored


async def test_a_model_asked_for_by_name_needs_no_routing():
    scene = Scene(small=ScriptedLlm(), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final(model="large")
    assert (final.model, outcomes(final)["router"]) == ("large", "SKIPPED")


async def test_a_bypass_neither_looks_up_nor_stores():
    scene = Scene(ScriptedCache(MISS))
    final = await scene.final(cache=pb.CachePolicy(bypass=True))
    assert final.cache.verdict == pb.CACHE_VERDICT_BYPASS
    assert not scene.cache.questions
    assert not scene.aftermath.stored


async def test_a_model_that_fails_before_its_first_word_is_replaced():
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(Unavailable("small: gone")), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final()
    assert (final.text, final.model, outcomes(final)["llm"]) == ("Hi.", "large", "REPLACED")
    assert list(final.degraded) == ["llm:replaced"]
    assert not scene.aftermath.stored
    assert [seen.outcome for seen in scene.aftermath.observed] == [
        router_pb2.OBSERVED_OUTCOME_FAILED,
        router_pb2.OBSERVED_OUTCOME_OK,
    ]


async def test_when_no_model_can_be_reached_the_error_says_so():
    gone = {name: ScriptedLlm(Unavailable(f"{name}: gone")) for name in ("small", "large")}
    with pytest.raises(ModelUnavailable, match="small: gone; large: gone"):
        await Scene(**gone).messages()


@pytest.mark.parametrize("ending", [Unavailable("small: reset"), None])
async def test_a_model_that_fails_after_its_first_word_ends_interrupted(ending):
    script = [text("Once upon")] if ending is None else [text("Once upon"), ending]
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(*script), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final()
    assert (final.text, final.finish_reason) == ("Once upon", chat_pb2.FINISH_REASON_INTERRUPTED)
    assert list(final.degraded) == ["llm:interrupted"]
    assert not scene.aftermath.stored


async def test_an_answer_ends_at_the_budget_with_what_there_is():
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(text("Once", 1), text(" upon", 1), TooLate("late")))
    final = await scene.final()
    assert (final.text, final.finish_reason) == ("Once upon", chat_pb2.FINISH_REASON_BUDGET)
    assert (list(final.degraded), outcomes(final)["llm"]) == (["llm:budget"], "OVERRUN")
    assert final.usage.completion_tokens == 2
    assert not scene.aftermath.stored


async def test_a_budget_without_a_word_is_still_an_answer():
    final = await Scene(small=ScriptedLlm(TooLate("late"))).final()
    assert (final.text, final.finish_reason) == ("", chat_pb2.FINISH_REASON_BUDGET)
    assert not final.HasField("ttft_ms")


async def test_what_the_model_refuses_is_refused():
    with pytest.raises(InvalidInput):
        await Scene(small=ScriptedLlm(InvalidInput("messages", "at most 2048 tokens", 3000))).messages()


async def test_a_client_that_leaves_stops_the_model():
    scene = Scene(small=ScriptedLlm(text("Once"), None))
    async with aclosing(scene.answer().messages()) as messages:
        await anext(messages)
    assert all(generation.closed for generation in scene.llms["small"].generations)
