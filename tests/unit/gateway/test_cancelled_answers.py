"""Whoever leaves an answer, at whichever await, is billed once and leaves nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from opentelemetry.trace import Span

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.answer import Messages
from services.gateway.api.kept import KeptAnswers, with_heartbeats
from services.gateway.config import KeptSettings
from services.runtime.errors import Unavailable
from tests.cancelling import cancelled_at_every_await
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text
from tests.unit.gateway.scripted_tools import ScriptedTools, calls, toolbox
from tests.unit.gateway.test_answer import EVERYTHING, MISS, Scene

Work = AsyncIterator[Coroutine[Any, Any, object]]
OFFERED = [pb.MeshTool(name="weather", offered=True)]


def plain() -> Scene:
    return Scene(small=ScriptedLlm(0.01, text("Pa"), 0.01, finish("ris.")), large=ScriptedLlm())


def after_a_miss() -> Scene:
    return Scene(ScriptedCache(MISS), small=ScriptedLlm(0.01, text("Pa"), 0.01, finish("ris.")), large=ScriptedLlm())


def by_another_model() -> Scene:
    return Scene(small=ScriptedLlm(0.01, Unavailable("gone")), large=ScriptedLlm(0.01, text("Pa"), finish("ris.")))


def with_tools() -> Scene:
    source = ScriptedTools(weather=(0.02, "rain"))
    asks = [0.01, calls(("weather", {"city": "Oslo"}))]
    scripts = [asks, [0.01, text("It "), finish("rains.")]]
    return Scene(tools=toolbox(source), small=ScriptedLlm(scripts=scripts), large=ScriptedLlm())


SCENES: dict[str, tuple[Callable[[], Scene], dict[str, Any]]] = {
    "plain": (plain, {}),
    "after a miss": (after_a_miss, {}),
    "by another model": (by_another_model, {}),
    "with tools": (with_tools, {"mesh_tools": OFFERED}),
}


async def begun(scene: Scene, fields: dict[str, Any]) -> Messages:
    """As the servicer begins it."""
    answer = scene.answer(**fields)
    if tools := scene.backends.tools:
        try:
            answer._draft.equipment = await tools.equip(answer._draft.question.request, EVERYTHING, 1.0)
        except BaseException:
            answer._reservation.settle(0)
            raise
    return answer.messages()


async def read(messages: AsyncGenerator[pb.GenerateResponse, None]) -> None:
    async with aclosing(messages):
        async for _ in messages:
            pass


def assert_over(scene: Scene) -> None:
    account = scene.quotas._accounts.get("acme")
    assert account is None or account.in_flight == 0
    for pool in scene.fleet.pools.values():
        assert (pool.limiter.in_flight, pool.limiter.waiting) == (0, 0)
        assert all(replica.in_flight == 0 for replica in pool.replicas)
    assert all(call.closed or call.finish for llm in scene.llms.values() for call in llm.calls)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("heartbeats", [False, True])
def test_of_an_answer(name: str, heartbeats: bool):
    make, fields = SCENES[name]

    @asynccontextmanager
    async def scene() -> Work:
        scene_ = make()

        async def work() -> None:
            messages = await begun(scene_, fields)
            await read(with_heartbeats(messages, 0.005) if heartbeats else messages)

        yield work()
        assert_over(scene_)

    assert cancelled_at_every_await(scene) >= 2


def test_of_a_shared_generation_whose_other_reader_has_all_of_it():
    @asynccontextmanager
    async def scene() -> Work:
        scene_ = plain()
        other = asyncio.create_task(joined(scene_))

        async def work() -> None:
            await read(scene_.answer().messages())

        yield work()
        assert await other == "Paris."
        assert_over(scene_)
        assert len(scene_.llms["small"].calls) == 1
        assert len(scene_.backends.models._under_way) == 0

    assert cancelled_at_every_await(scene) >= 2


async def joined(scene: Scene) -> str:
    await asyncio.sleep(0)
    messages = [message async for message in scene.answer().messages()]
    return messages[-1].events[-1].final.text


@pytest.mark.parametrize("kept_ms", [1, 60_000])
def test_of_a_kept_answer_for_which_its_client_does_not_come_back(kept_ms: int):
    @asynccontextmanager
    async def scene() -> Work:
        scene_, kept = plain(), KeptAnswers(KeptSettings(ms=kept_ms))

        async def begin(span: Span) -> Messages:
            return scene_.answer().messages()

        request = pb.GenerateRequest(idempotency_key="k")
        yield read(with_heartbeats(kept.follow(request, "acme", begin, 60.0), 0.005))
        await asyncio.sleep(120)
        assert (len(kept), kept._sizes.total()) == (0, 0)
        assert_over(scene_)

    assert cancelled_at_every_await(scene) >= 2
