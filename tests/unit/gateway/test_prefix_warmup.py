"""Prompts that are read in advance: on which replicas, for which tenants, and what that leaves unchanged."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from hedgerow.llm.v1 import llm_pb2
from services.gateway.answer.backends import Prompts
from services.gateway.api import reports_and_warmup
from services.gateway.config import GatewaySettings
from services.gateway.errors import WarmDenied
from services.gateway.policies.hedge import HedgeMoment
from services.gateway.policies.slot import SlotRequest
from services.gateway.prefix_warmup import hot_prompts
from services.gateway.settings.prompt import PromptSettings, SystemPromptSettings
from services.gateway.upstream import balance
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, InvalidInput, Unavailable
from tests.clock import loop_clock, on_paused_loop
from tests.examples import examples
from tests.unit.gateway.answer.scene import SETTINGS
from tests.unit.gateway.answer.scene import Scene as Answering
from tests.unit.gateway.scripted import ScriptedLlm, finish, fleet, text
from tests.unit.gateway.warming import KEPT, LONG, Scene, llm, read
from tests.waiting import until

pytestmark = pytest.mark.paused


async def test_every_replica_reads_every_variant_with_one_token_of_output() -> None:
    replicas = [llm(), llm()]
    scene = Scene(small=replicas)
    await scene.ran()
    for replica in replicas:
        assert read(replica) == [(LONG, ""), ("Answer in one sentence.", "")]
        assert {asked.sampling.max_tokens for asked in replica.requests} == {1}
        assert replica.requests[0].messages[-1].role == chat_pb2.ROLE_USER


async def test_a_model_that_does_not_chat_reads_no_prompt() -> None:
    small, embed = llm(), llm()
    scene = Scene(small=small, embed=embed)
    scene.fleet.pools["embed"].chats = False
    await scene.ran()
    assert {step.replica for step in await scene.warmed()} == {"small#1"}
    assert (bool(small.requests), embed.requests) == (True, [])


async def test_a_prompt_is_read_again_when_it_is_due() -> None:
    model = llm()
    async with Scene(small=model).running():
        await asyncio.sleep(50)
        assert len(model.requests) == 2
        await asyncio.sleep(15)
        assert len(model.requests) == 4


async def test_without_a_schedule_it_is_read_once_and_again_by_replicas_that_return() -> None:
    model = llm()
    scene = Scene(warm={"every_ms": 0}, small=model)
    breaker = scene.fleet.pools["small"].replicas[0].breaker
    async with scene.running():
        await asyncio.sleep(10_000)
        assert len(model.requests) == 2
        breaker.disconnected()
        await asyncio.sleep(2)
        assert len(model.requests) == 2, "a replica without a connection is not called"
        breaker.connected()
        await asyncio.sleep(2)
        assert len(model.requests) == 4


async def test_a_restarted_replica_reads_all_prompts_again() -> None:
    model = llm(pause_s=0.5)
    scene = Scene(warm={"every_ms": 0}, small=model)
    breaker = scene.fleet.pools["small"].replicas[0].breaker
    async with scene.running():
        await until(lambda: len(model.requests) == 2)
        breaker.disconnected()
        breaker.connected()  # while the second prompt is being read
        await asyncio.sleep(10)
        assert len(model.requests) == 4, "the new process has read both as well"


async def test_a_failed_warm_up_is_repeated_and_delays_no_other_replica() -> None:
    broken, well = ScriptedLlm(Unavailable("away")), llm()
    async with Scene(small=[broken, well]).running():
        await asyncio.sleep(15)
        assert len(well.requests) == 2
        assert len(broken.requests) == 4  # both variants, at once and after ten seconds


async def test_a_slow_replica_delays_no_other_one_not_even_one_that_comes_later() -> None:
    slow, well, later = llm(pause_s=3_600), llm(), llm()
    scene, other = Scene(small=[slow, well]), fleet(loop_clock, small=later)
    async with scene.running():
        await asyncio.sleep(1.5)
        assert (len(slow.requests), len(well.requests)) == (1, 2)
        scene.fleet.pools["small"].replicas.append(other.pools["small"].replicas[0])
        await asyncio.sleep(1.5)
        assert (len(slow.requests), len(later.requests)) == (1, 2)


async def test_nothing_is_read_where_no_prompt_is_named_or_the_tier_is_another() -> None:
    small, quick = llm(), llm()
    await Scene(warm={"prompts": []}, small=small).ran()
    assert not small.requests
    await Scene(warm={"tiers": ["fast"]}, small=small, quick=quick).ran()
    assert (len(small.requests), len(quick.requests)) == (0, 2)


async def test_before_the_first_table_no_tier_is_known_and_without_a_router_all_models_read() -> None:
    model = llm()
    scene = Scene(small=model)
    scene.routes.names = ()
    async with scene.running():
        await asyncio.sleep(5)
        assert not model.requests
        scene.routes.expected = False
        await asyncio.sleep(5)
        assert len(model.requests) == 2


async def test_a_prompt_is_read_once_for_each_salt_that_asks_for_it() -> None:
    keys = {name: {"keys": [f"{number:064x}"], "warm": True} for number, name in enumerate(("a", "b", "c"))}
    keys["a"]["prefix_group"] = keys["b"]["prefix_group"] = "shared"
    keys["cold"] = {"keys": [f"{9:064x}"]}
    model = llm()
    scene = Scene(tenants=keys, warm={"prompts": ["other"]}, small=model)
    await scene.ran()
    salts = [salt for _, salt in read(model)]
    known = {tenant.name: tenant.prefix_salt for tenant in scene.identity.warmed()}
    assert len(salts) == len(set(salts)) == 2
    assert set(salts) == set(known.values())
    assert "" not in salts
    assert "cold" not in known


async def test_a_busy_model_warms_nothing_beside_waiting_requests_and_sheds_none() -> None:
    model = llm()
    scene = Scene(small=model)
    limiter = scene.fleet.pools["small"].limiter
    slots = [await limiter.enter(_ticket()) for _ in range(4)]
    async with scene.running():
        await asyncio.sleep(0.01)
        assert limiter.waiting == 0, "warm-up does not wait in the limiter's queue"
        waiting = asyncio.create_task(limiter.enter(_ticket()))
        await asyncio.sleep(0.1)
        assert not model.requests
        slots.pop().release()
        slots.append(await waiting)
        await asyncio.sleep(0.1)
        assert not model.requests, "a free slot goes to users first"
        for slot in slots:
            slot.release()
        await asyncio.sleep(20)
        assert len(model.requests) == 2


async def test_nothing_that_is_learned_from_users_moves() -> None:
    model = llm(pause_s=0.1)
    scene = Scene(warm={"every_ms": 1_000}, small=[model, llm(pause_s=0.1), ScriptedLlm(Unavailable("away"))])
    pool = scene.fleet.pools["small"]
    async with scene.running():
        await asyncio.sleep(120)
    assert len(model.requests) > 100
    assert pool.baseline.quantile_s(0.5) is None
    assert pool.hedge.moment() == HedgeMoment(0.3, "the expected first-token time")
    assert pool.limiter.queue_capacity == 100, "only users' calls determine the queue's capacity"
    assert (pool.limiter.in_flight, pool.limiter.waiting) == (0, 0)
    assert [replica.in_flight for replica in pool.replicas] == [0, 0, 0]
    assert all(replica.breaker.would_admit() for replica in pool.replicas)


async def test_a_replica_that_has_read_a_prompt_is_matched_for_that_salt_alone() -> None:
    scene = Scene(tenants={"a": {"keys": [f"{1:064x}"], "warm": True}}, small=[llm(), llm()])
    (tenant,) = scene.identity.warmed()
    await scene.ran()
    asked = llm_pb2.GenerateRequest(
        messages=[
            chat_pb2.Message(role=chat_pb2.ROLE_SYSTEM, content=LONG),
            chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Where is my order?"),
        ]
    )
    for replica in scene.fleet.pools["small"].replicas:
        asked.cache_salt = tenant.prefix_salt
        assert replica.prefixes.matched(balance.blocks_of(asked)) > 0
        asked.cache_salt = "another"
        assert replica.prefixes.matched(balance.blocks_of(asked)) == 0


async def test_warming_now_reports_each_step_with_the_time_to_the_first_text_before_and_after() -> None:
    model = ScriptedLlm(scripts=[[0.001, finish()], [0.001, finish()], [0.5, text("I"), finish()], [0.02, finish()]])
    steps = await Scene(warm={"prompts": ["other"]}, small=model).warmed()
    kinds = [pb.WarmKind.Name(step.kind).removeprefix("WARM_KIND_").lower() for step in steps]
    assert kinds == ["connection", "engine", "prompt"]
    assert [step.replica for step in steps] == ["small#1"] * 3
    assert steps[2].prompt == "other@1 (default)"
    assert (steps[2].before_ms, steps[2].after_ms) == (pytest.approx(500), pytest.approx(20))
    assert steps[2].took_ms == pytest.approx(520)
    assert not any(step.problem for step in steps)


async def test_a_prompt_warmed_on_request_is_not_due_at_once() -> None:
    model = llm()
    scene = Scene(small=model)
    await scene.warmed()
    before = len(model.requests)
    async with scene.running():
        await asyncio.sleep(30)
    assert len(model.requests) == before


async def test_warming_now_goes_on_with_the_others_where_a_replica_is_away() -> None:
    away, broken, well = llm(), ScriptedLlm(Unavailable("small: broken")), llm()
    away.unconnected = Unavailable("small: no connection within 2 s")
    steps = await Scene(small=[away, broken, well], large=[]).warmed("other")
    assert [(step.replica, step.problem) for step in steps if step.problem] == [
        ("small#1", "small: no connection within 2 s"),
        ("small#2", "small: broken"),
        ("large", "large: no replica is in service"),
    ]
    assert [step.prompt for step in steps if step.replica == "small#3"] == ["", "", "other@1 (default)"]
    assert not away.requests


async def test_calls_without_permission_of_unknown_names_or_beside_another_are_refused() -> None:
    scene = Scene(tenants={"a": {"keys": [f"{1:064x}"]}}, small=llm())
    cold = scene.identity._tenant("a", scene.identity._known)
    with pytest.raises(WarmDenied):
        await anext(reports_and_warmup.warm_up(pb.WarmRequest(), cold, scene.warming))
    scene = Scene(small=llm())
    with pytest.raises(InvalidInput, match="system_prompts: one of support, other, got nothing"):
        await scene.warmed("nothing")
    local = scene.identity.tenant(None)
    first = reports_and_warmup.warm_up(pb.WarmRequest(), local, scene.warming)
    await anext(first)
    with pytest.raises(Exhausted, match="one call at a time"):
        await scene.warmed()
    await first.aclose()
    assert await scene.warmed(), "a call that its caller left does not block the next one"


@given(st.text(min_size=1, max_size=300), st.sampled_from(["off", "system", "all"]), st.integers(0, 400))
@settings(max_examples=examples(50), deadline=None)
def test_a_prompt_is_warmed_as_a_request_has_it_read(prompt: str, diet: str, most: int) -> None:
    own = PromptSettings(diet=diet, diet_to_bytes=most)
    kept = {"p": SystemPromptSettings(default=prompt)}
    (hot,) = hot_prompts(["*"], kept, own)

    async def asked() -> str:
        scene = Answering(prompts=Prompts(kept))
        scene.settings = SETTINGS.model_copy(update={"prompt": own})
        await scene.final(prompt=pb.PromptPolicy(system="p"))
        return scene.llms["small"].requests[0].messages[0].content

    assert on_paused_loop(asked()) == hot.text


def _ticket() -> SlotRequest:
    return SlotRequest(0, "user", 1, Deadline.after(60, loop_clock))


@pytest.mark.parametrize("prompts", [["nothing"], ["support", "https://user:secret@host"]])
def test_a_setting_that_names_no_kept_prompt_is_refused(prompts: list[str]) -> None:
    with pytest.raises(
        ValidationError, match=r"prompts: `\*`, or one of support, other \(`system_prompts`\), got"
    ) as caught:
        GatewaySettings(llm_addresses={"m": "unused"}, system_prompts=KEPT, warm={"prompts": prompts})
    assert "secret@" not in str(caught.value.errors()[0]["msg"])
