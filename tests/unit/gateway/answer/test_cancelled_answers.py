"""A caller that leaves an answer, at whichever await, is billed once and leaves nothing running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from opentelemetry.trace import Span

from hedgerow.cache.v1 import cache_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.quota import Claim, Reservation
from services.gateway.answer.event_writer import Send
from services.gateway.answer.runner import AnswerRunner
from services.gateway.api.idempotency import IdempotencyStore, with_heartbeats
from services.gateway.policies.tenant_aware_breaker import TenantAwareBreaker
from services.gateway.settings.serving import KeptSettings
from services.runtime.errors import Unavailable
from tests.cancelling import Work, cancelled_at_every_await
from tests.clock import loop_clock
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.answer.stages.cascades import cascading
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text
from tests.unit.gateway.scripted_media import ScriptedAudio, ScriptedVision, senses
from tests.unit.gateway.scripted_tools import ScriptedTools, calls, toolbox

OFFERED = [pb.MeshTool(name="weather", offered=True)]


def plain() -> Scene:
    return Scene(small=ScriptedLlm(0.01, text("Pa"), 0.01, finish("ris.")), large=ScriptedLlm())


class SlowCache(ScriptedCache):
    async def lookup(self, request, timeout_s, metadata) -> cache_pb2.LookupResponse:
        await asyncio.sleep(0.01)
        return await super().lookup(request, timeout_s, metadata)


def after_a_miss() -> Scene:
    return Scene(SlowCache(MISS), small=ScriptedLlm(0.01, text("Pa"), 0.01, finish("ris.")), large=ScriptedLlm())


def with_all_senses() -> Scene:
    seen, heard = ScriptedVision([("cat", 0.9)], pause_s=0.02), ScriptedAudio("a cat?", pause_s=0.02)
    return Scene(senses=senses(seen, heard), small=ScriptedLlm(0.01, text("Pa"), finish("ris.")), large=ScriptedLlm())


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
    "with a picture and a recording": (
        with_all_senses,
        {"images": [pb.Image(data=b"1")], "audio": pb.Audio(data=b"2")},
    ),
    "with tools": (with_tools, {"mesh_tools": OFFERED}),
    "of a cascade": (partial(cascading, 0.01, text("Pa"), 0.01, finish("ris.")), {"cascade": pb.Cascade()}),
}


async def begun(scene: Scene, fields: dict[str, Any]) -> AnswerRunner:
    """As the servicer begins it."""
    return await scene.equipped(**fields) if scene.backends.tools else scene.answer(**fields)


async def read(message: pb.GenerateResponse) -> None:
    await asyncio.sleep(0)


def breakers(scene: Scene) -> list[TenantAwareBreaker]:
    media = [each.breaker for each in (scene.media.vision, scene.media.audio) if each]
    models = [replica.breaker for pool in scene.fleet.pools.values() for replica in pool.replicas]
    return [scene.breaker, *media, *models]


async def on_probation(scene: Scene) -> None:
    """The next call of each backend is a probe."""
    for breaker in breakers(scene):
        permit = breaker.enter()
        assert permit
        permit.throttled(0.001)
    await asyncio.sleep(0.01)


def assert_over(scene: Scene) -> None:
    account = scene.quotas._accounts.get("acme")
    assert account is None or account.in_flight == 0
    for pool in scene.fleet.pools.values():
        assert (pool.limiter.in_flight, pool.limiter.waiting) == (0, 0)
        assert all(replica.in_flight == 0 for replica in pool.replicas)
    assert all(call.closed or call.finish for llm in scene.llms.values() for call in llm.calls)
    if vision := scene.media.vision:
        client: Any = vision.client
        assert client.ended == len(client.requests)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("heartbeats", [False, True])
@pytest.mark.parametrize("probes", [False, True])
@cancelled_at_every_await(awaits=2)
async def test_a_cancelled_answer_leaves_nothing_behind(name: str, heartbeats: bool, probes: bool) -> Work:
    make, fields = SCENES[name]
    scene = make()
    for breaker in breakers(scene):
        breaker.clock = breaker._common.clock = loop_clock
    if probes:
        await on_probation(scene)

    async def work() -> None:
        give = (await begun(scene, fields)).give
        await (with_heartbeats(give, read, 0.005) if heartbeats else give(read))

    yield work()
    assert_over(scene)
    await asyncio.sleep(600)
    assert all(breaker.would_admit("acme") for breaker in breakers(scene)), "a breaker still waits for a probe"


@cancelled_at_every_await(awaits=2)
async def test_a_cancelled_reader_leaves_all_of_a_shared_generation_to_the_other() -> Work:
    scene = plain()
    other = asyncio.create_task(joined(scene))

    async def work() -> None:
        await scene.answer().give(read)

    yield work()
    assert await other == "Paris."
    assert_over(scene)
    assert len(scene.llms["small"].calls) == 1
    assert len(scene.backends.models._under_way) == 0


async def joined(scene: Scene) -> str:
    await asyncio.sleep(0)
    return (await scene.answer().give()).text


@pytest.mark.parametrize("kept_ms", [1, 60_000])
@cancelled_at_every_await(awaits=2)
async def test_a_cancelled_stored_answer_without_a_returning_client_leaves_nothing_behind(kept_ms: int) -> Work:
    scene, kept = plain(), IdempotencyStore(KeptSettings(ms=kept_ms))

    async def begin(span: Span, send: Send) -> None:
        await scene.answer().give(send)

    async def admit(claim: Claim) -> Reservation:
        raise AssertionError("a second client connected")

    request = pb.GenerateRequest(idempotency_key="k")
    yield with_heartbeats(partial(kept.follow, request, "acme", begin, admit, 60.0), read, 0.005)
    await asyncio.sleep(120)
    assert (len(kept), kept.size) == (0, 0)
    assert_over(scene)
