from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.router.v1 import router_pb2
from services.gateway.answer.backends import Fallbacks
from services.gateway.answer.stages.cache.stage import CacheStage
from services.gateway.config import TEMPLATE
from services.gateway.errors import ModelUnavailable
from services.runtime.errors import InvalidInput, TooLate, Unavailable
from tests.unit.gateway.answer.scene import ACME, MISS, STORED, Scene, outcomes
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, ScriptedRoutes, finish, text

pytestmark = pytest.mark.paused


async def test_a_models_request_has_the_salt_of_the_prompts_that_it_may_reuse():
    scene = Scene()
    await scene.final()
    (asked,) = scene.llms["small"].requests
    assert asked.cache_salt == ACME.prefix_salt == "salt"


async def test_an_answer_is_accepted_then_text_then_final():
    events = await Scene(ScriptedCache(MISS)).events()
    assert [event.WhichOneof("kind") for event in events] == [
        *("accepted", "stage", "stage", "delta", "delta", "stage", "final")
    ]
    assert [event.stage for event in events if event.HasField("stage")] == list(events[-1].final.stages)
    assert [planned.name for planned in events[0].accepted.plan] == ["cache", "router", "llm"]
    final = events[-1].final
    assert (final.text, final.model) == ("Paris.", "small")
    assert outcomes(final) == {"cache": "OK", "router": "OK", "llm": "OK"}
    assert final.cache.similarity == pytest.approx(0.4)
    assert not final.degraded


async def test_without_a_table_the_first_model_stands_in_and_nothing_is_stored():
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(names=()))
    final = await scene.final()
    assert (final.model, list(final.degraded)) == ("small", ["router:unavailable"])
    assert not scene.write_behind.stored


async def test_a_gateway_that_has_no_router_is_not_degraded_by_it():
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(names=(), expected=False))
    final = await scene.final()
    assert (final.model, list(final.degraded), outcomes(final)["router"]) == ("small", [], "SKIPPED")
    assert scene.write_behind.stored


async def test_a_model_asked_for_by_name_needs_no_routing():
    scene = Scene(small=ScriptedLlm(), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final(model="large")
    assert (final.model, outcomes(final)["router"]) == ("large", "SKIPPED")


async def test_a_model_that_fails_before_its_first_word_is_replaced():
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(Unavailable("small: gone")), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final()
    assert (final.text, final.model, outcomes(final)["llm"]) == ("Hi.", "large", "REPLACED")
    assert list(final.degraded) == ["llm:replaced"]
    assert not scene.write_behind.stored
    await asyncio.sleep(0.01)  # the router is notified once the client has everything
    assert [seen.outcome for seen in scene.write_behind.observed] == [
        router_pb2.OBSERVED_OUTCOME_FAILED,
        router_pb2.OBSERVED_OUTCOME_OK,
    ]


async def test_the_error_of_unreachable_models_has_the_decisions_of_the_policies():
    gone = {name: ScriptedLlm(Unavailable(f"{name}: gone")) for name in ("small", "large")}
    with pytest.raises(ModelUnavailable, match="small: gone; large: gone") as refused:
        await Scene(**gone).messages()
    assert '"policy": "fallback"' in refused.value.metadata["decisions"]


@pytest.mark.parametrize("ending", [Unavailable("small: reset"), None])
async def test_a_model_that_fails_after_its_first_word_ends_interrupted(ending):
    script = [text("Once upon")] if ending is None else [text("Once upon"), ending]
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(*script), large=ScriptedLlm(finish("Hi.")))
    final = await scene.final()
    assert (final.text, final.finish_reason) == ("Once upon", chat_pb2.FINISH_REASON_INTERRUPTED)
    assert list(final.degraded) == ["llm:interrupted"]
    assert not scene.write_behind.stored


async def test_an_answer_ends_at_the_budget_with_what_there_is():
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(text("Once", 1), text(" upon", 1), TooLate("late")))
    final = await scene.final()
    assert (final.text, final.finish_reason) == ("Once upon", chat_pb2.FINISH_REASON_BUDGET)
    assert (list(final.degraded), outcomes(final)["llm"]) == (["llm:budget"], "OVERRUN")
    assert final.usage.completion_tokens == 2
    assert not scene.write_behind.stored


async def test_a_budget_without_a_word_is_still_an_answer():
    final = await Scene(routes=ScriptedRoutes(("small",)), small=ScriptedLlm(TooLate("late"))).final()
    assert (final.text, final.finish_reason) == (TEMPLATE, chat_pb2.FINISH_REASON_BUDGET)
    assert list(final.degraded) == ["llm:template"]


async def test_without_a_fallback_an_answer_over_budget_is_empty():
    late = {"routes": ScriptedRoutes(("small",)), "small": ScriptedLlm(TooLate("late"))}
    form = chat_pb2.ResponseFormat(json_object=True)
    for final in (
        await Scene(**late, fallbacks=Fallbacks(())).final(),
        await Scene(**late).final(response_format=form),
        await Scene(**late).final(tools=[chat_pb2.Tool(name="clock")]),
    ):
        assert (final.text, final.finish_reason) == ("", chat_pb2.FINISH_REASON_BUDGET)
        assert list(final.degraded) == ["llm:budget"]
        assert not final.HasField("ttft_ms")


async def test_questions_that_differ_in_white_space_share_a_generation_and_case_separates_them():
    scene = Scene(ScriptedCache(MISS), small=ScriptedLlm(0.01, text("Pa"), 0.01, finish("ris.")))
    usual, spaced, shouted = (
        [chat_pb2.Message(role=chat_pb2.ROLE_USER, content=each)] for each in ("Why?", " Why?\r\n", "WHY?")
    )
    first, second = await asyncio.gather(scene.final(messages=usual), scene.final(messages=spaced))
    assert (first.text, second.text) == ("Paris.", "Paris.")
    assert len(scene.llms["small"].calls) == 1
    assert [[made.action for made in final.decisions] for final in (first, second)] == [[], ["joined"]]
    assert (first.cost_usd > 0, second.cost_usd) == (True, 0)
    assert len(scene.write_behind.stored) == 1
    await scene.final(messages=shouted)
    assert len(scene.llms["small"].calls) == 2


@pytest.mark.parametrize(("budgets_ms", "calls"), [((0, 50), 2), ((50, 0), 2), ((500, 500), 1), ((0, 5_000), 1)])
async def test_a_limit_of_the_first_text_holds_for_its_own_request(budgets_ms: tuple[int, int], calls: int):
    small = ScriptedLlm(0.2, finish("Paris."))
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(("small",)), small=small)
    finals = await asyncio.gather(*(scene.final(first_token_budget_ms=ms) for ms in budgets_ms))
    assert [final.text for final in finals] == ["Paris." if ms != 50 else TEMPLATE for ms in budgets_ms]
    assert len(small.calls) == calls


@pytest.mark.parametrize(("other", "degraded"), [("large", []), ("quick", ["llm:replaced"])])
async def test_an_answer_of_another_model_that_won_as_the_hedge_is_reported_as_one(other: str, degraded: list[str]):
    """One of a lower tier than was wanted is degraded, and not stored."""
    hedge = {"mode": "fixed", "delay_ms": 100, "max_share": 1, "across_models": True}
    models = {"small": ScriptedLlm(None), other: ScriptedLlm(finish("Paris."))}
    scene = Scene(ScriptedCache(MISS), ScriptedRoutes(tuple(models)), policies={"hedge": hedge}, **models)
    final = await scene.final(tier=pb.TIER_QUALITY)
    assert (final.model, list(final.degraded), len(scene.write_behind.stored)) == (other, degraded, not degraded)
    assert [(change.what, change.before, change.after) for change in final.changes][-1] == ("model", "small", other)


STALE = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_MISS, stale=STORED)
FIXED = Fallbacks(("stale", "template"), "Ask again.")


async def test_an_expired_answer_stands_in_for_a_broken_model():
    gone = {name: ScriptedLlm(Unavailable("gone")) for name in ("small", "large")}
    scene = Scene(ScriptedCache(STALE), fallbacks=FIXED, **gone)
    final = await scene.final()
    assert (final.text, list(final.degraded), outcomes(final)["llm"]) == ("Paris.", ["llm:stale"], "REPLACED")
    assert [made.policy for made in final.decisions] == ["fallback", "fallback"]
    assert not scene.write_behind.stored


@pytest.mark.parametrize(("order", "answer", "act"), [("stale", "Paris.", "stale"), ("smaller", "Fresh.", "waited")])
async def test_with_an_expired_answer_as_fallback_no_call_waits_for_a_model(order: str, answer: str, act: str):
    llm, routes = ScriptedLlm(finish("Fresh.")), ScriptedRoutes(("small",))
    scene = Scene(ScriptedCache(STALE), routes, Fallbacks((order,), ""), small=llm)
    start = scene.fleet.pools["small"].replicas[0].start
    start.starting = True
    asyncio.get_running_loop().call_later(0.2, start.started)
    final = await scene.final()
    assert (final.text, [made.action for made in final.decisions]) == (answer, [act])


async def test_a_fault_after_the_last_event_leaves_no_reservation_open(monkeypatch: pytest.MonkeyPatch):
    def broken(stage: CacheStage, final: pb.Final) -> NoReturn:
        raise RuntimeError

    monkeypatch.setattr(CacheStage, "after_final", broken)
    scene = Scene(ScriptedCache(MISS))
    with pytest.raises(RuntimeError):
        await scene.messages()
    assert len(scene.billed) == 1


async def test_a_cost_limit_leaves_out_models_that_may_cost_more_and_refuses_what_none_can_do():
    with pytest.raises(InvalidInput, match="max_cost_usd: at least"):
        await Scene(ScriptedCache(MISS)).final(max_cost_usd=1e-9)
    with pytest.raises(InvalidInput, match="max_cost_usd: at least"):
        await Scene().final(max_cost_usd=1e-9, model="small")
    assert (await Scene().final(max_cost_usd=0.1)).text == "Paris."


async def test_a_stream_that_ends_without_a_finish_is_an_error():
    scene = Scene(routes=ScriptedRoutes(("small",)), small=ScriptedLlm(None))
    answering = asyncio.create_task(scene.final())
    await asyncio.sleep(0.05)
    for pending in list(scene.backends.models._under_way._executions.values()):
        pending.text._task.cancel()
    with pytest.raises(Unavailable, match="cancelled"):
        await answering


async def test_the_time_of_the_first_whole_sentence_is_reported_or_that_of_all_text():
    script = (0.1, text("It is "), 0.1, text("Paris. "), 0.1, text("The Seine"), 0.1, finish(" is there."))
    final = await Scene(small=ScriptedLlm(*script)).final()
    assert (round(final.ttft_ms), round(final.usable_ms), round(final.total_ms)) == (100, 300, 400)
    cut = await Scene(small=ScriptedLlm(text("It"), 0.1, finish(" is"))).final()
    assert round(cut.usable_ms) == 100
    assert not (await Scene(small=ScriptedLlm(finish())).final()).HasField("usable_ms")
