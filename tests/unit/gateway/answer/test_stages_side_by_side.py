"""A stage starts when those it waits for are done, whatever else is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.plan import StageClaim, make_plan
from services.gateway.answer.registry import STAGES
from services.gateway.answer.results import Done
from services.gateway.answer.stages.cache.stage import CacheStage
from services.gateway.answer.stages.stage import AnswerStage, Work
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import EXACT, Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, text

pytestmark = pytest.mark.paused


class Slow(ScriptedCache):
    """Replies after 0.4 s."""

    async def lookup(self, request, timeout_s, metadata) -> cache_pb2.LookupResponse:
        await asyncio.sleep(0.4)
        return await super().lookup(request, timeout_s, metadata)


def beside(name: str, takes_s: float, started: dict[str, float], guards: bool = False) -> type[AnswerStage]:
    async def start(self: AnswerStage) -> Work:
        started[name] = loop_clock()
        guarded = self.context.privacy.guarded
        if guards:
            guarded.clear()
        return work(guarded)

    async def work(guarded: asyncio.Event) -> None:
        await asyncio.sleep(takes_s)
        guarded.set()

    return type(name, (AnswerStage,), {"name": name, "start": start})


class Last(AnswerStage):
    """Ends the answer after all others."""

    name, closing = "last", True

    async def run(self) -> Done:
        return Done(chat_pb2.FINISH_REASON_STOP)


async def ended(
    stages: Mapping[str, type[AnswerStage]], plan: list[StageClaim], scene: Scene
) -> tuple[float, pb.Final]:
    """When it was over, in seconds, and its last event."""
    answer, began = scene.answer(), loop_clock()
    answer._stages = {**stages, "last": Last}
    answer._ledger.plan = make_plan([*plan, StageClaim("last", 1, 1e9)], 2_000)
    events = [event async for message in sent_by(answer.give) for event in message.events]
    return loop_clock() - began, events[-1].final


async def test_a_stage_does_not_wait_for_one_that_it_does_not_need():
    started: dict[str, float] = {}
    stages = {name: beside(name, s, started) for name, s in (("vision", 0.3), ("guard", 0.05), ("tools", 0.2))}
    plan = [
        StageClaim("vision", 0.4, 1e9),
        StageClaim("guard", 0.1, 1e9),
        StageClaim("tools", 0.4, 1e9, False, ("guard",)),
    ]
    began = loop_clock()
    over, _ = await ended(stages, plan, Scene())
    assert started["tools"] - began == pytest.approx(0.05)
    assert over == pytest.approx(0.3)


async def test_a_client_that_leaves_pays_for_a_model_that_was_asked_beside_another_stage():
    scene = Scene(small=ScriptedLlm(text("Pa"), None))
    answer = scene.answer()
    answer._stages = {**STAGES, "own": beside("own", 9, {})}
    own = [planned.stage for planned in answer._ledger.plan.slices]
    answer._ledger.plan = make_plan([*own, StageClaim("own", 0.5, 1e9)], 1_000)
    asked = asyncio.create_task(answer.give())
    await asyncio.sleep(0.1)
    asked.cancel()
    await asyncio.wait({asked})
    assert scene.billed == [7 + 1]  # an estimate of the prompt, and a token


async def test_a_stored_answer_waits_for_the_guard_that_looks_longer():
    started: dict[str, float] = {}
    stages = {"guard": beside("guard", 0.5, started, guards=True), "cache": CacheStage}
    over, final = await ended(
        stages, [StageClaim("guard", 0.4, 1e9), StageClaim("cache", 0.4, 1e9)], Scene(Slow(EXACT))
    )
    assert over == pytest.approx(0.5)
    assert final.text == "Paris."
