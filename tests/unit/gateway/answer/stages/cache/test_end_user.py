"""Stored answers of one end user alone: which are looked up, stored, shared and generated again, and which are not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.cache_eligibility.choice import choose
from services.gateway.cache_eligibility.settings import HitSettings
from services.gateway.labels import Bypassed
from services.runtime import question_key
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish

pytestmark = pytest.mark.paused
USER = pb.CachePolicy(scope=pb.CACHE_SCOPE_USER)


def scene_of(reply=MISS, scope: str = "user", **llms: ScriptedLlm) -> Scene:
    scene = Scene(ScriptedCache(reply), **llms)
    scene.tenant = replace(scene.tenant, hits=HitSettings(scope=scope))
    return scene


async def asked(scene: Scene, **fields: Any):
    await scene.final(**fields)
    return scene.cache.questions[-1]


async def test_each_end_user_has_a_key_and_a_partition_of_its_own():
    scene = scene_of()
    anna, bert, again = [await asked(scene, end_user=[name]) for name in ("anna", "bert", "anna")]
    assert anna == again
    assert anna.end_user != bert.end_user
    assert question_key.digest(anna) != question_key.digest(bert)
    stored = [each.question.end_user for each in scene.write_behind.stored]
    assert stored == [anna.end_user, bert.end_user, anna.end_user]
    assert "anna" not in str(anna), "the cache receives no name of the end user"


async def test_end_users_are_one_where_all_their_names_are_the_same():
    scene, names = scene_of(), [["a", "b"], ["a"], ["ab"], ["b", "a"], ["a,b"], ['a", "b']]
    digests = {(await asked(scene, end_user=each)).end_user for each in names}
    assert len(digests) == len(names)


async def test_a_request_that_names_no_end_user_is_neither_looked_up_nor_stored_and_says_why():
    scene = scene_of(EXACT)
    final = await scene.final()
    assert (final.cache.verdict, final.cache.reason) == (pb.CACHE_VERDICT_BYPASS, "no_user")
    assert not scene.cache.questions
    assert not scene.write_behind.stored


async def test_a_request_may_have_it_for_its_end_user_alone_and_may_not_share_what_its_tenant_keeps_apart():
    shared = scene_of(scope="tenant")
    assert (await asked(shared, end_user=["anna"])).end_user == ""
    assert (await asked(shared, end_user=["anna"], cache=USER)).end_user
    assert (await shared.final(cache=USER)).cache.reason == "no_user"
    apart = scene_of()
    tenant = pb.CachePolicy(scope=pb.CACHE_SCOPE_TENANT)
    assert (await asked(apart, end_user=["anna"], cache=tenant)).end_user


@pytest.mark.parametrize(
    ("users", "calls"), [((["anna"], ["anna"]), 1), ((["anna"], ["bert"]), 2), (([], []), 2), ((["anna"], []), 2)]
)
async def test_equal_questions_at_a_time_share_an_answer_of_one_end_user_alone(users, calls):
    scene = scene_of(small=ScriptedLlm(0.05, finish("It rains.")), large=ScriptedLlm())
    await asyncio.gather(*(scene.final(end_user=each) for each in users))
    assert len(scene.llms["small"].calls) == calls


async def test_a_copy_in_the_gateway_is_for_its_end_user_alone():
    scene = scene_of(EXACT)
    first = await scene.final(end_user=["anna"])
    scene.cache.outcome = MISS
    again, other = await scene.final(end_user=["anna"]), await scene.final(end_user=["bert"])
    assert [final.cache.verdict for final in (first, again)] == [pb.CACHE_VERDICT_EXACT] * 2
    assert len(scene.cache.questions) == 2, "the second answer comes from the L1 cache"
    assert other.cache.verdict == pb.CACHE_VERDICT_MISS


async def test_a_pending_answer_is_for_its_end_user_alone():
    """By its real memory, which is asked by tenant and key."""
    scene = scene_of()
    keys = []
    scene.write_behind.pending = lambda tenant, key: keys.append(key)
    for name in ("anna", "bert", "anna"):
        await scene.final(end_user=[name])
    assert keys[0] == keys[2] != keys[1]


async def test_an_expired_answer_is_revalidated_for_each_end_user_separately():
    reply = type(EXACT)()
    reply.CopyFrom(EXACT)
    reply.expired_ms = 5
    scene = scene_of(reply)
    resubmitted = {}
    for name in ("anna", "bert"):
        answer = scene.answer(revalidate=lambda key, name=name: resubmitted.update({name: key}), end_user=[name])
        async for _ in sent_by(answer.give):
            pass
    assert len({*resubmitted.values()}) == 2


@pytest.mark.parametrize("others", ["off", "exact", "any"])
@pytest.mark.parametrize("named", [True, False])
def test_the_scope_allows_nothing_that_is_not_allowed_without_it(others, named):
    plain = choose(pb.CachePolicy(), chat_pb2.Sampling(), ["Hello"], HitSettings(others=others))
    scoped = choose(
        pb.CachePolicy(), chat_pb2.Sampling(), ["Hello"], HitSettings(others=others, scope="user"), names_user=named
    )
    assert scoped.of_user == (named or others == "off")
    if named or others == "off":
        assert (scoped.allowed_hits, scoped.reason) == (plain.allowed_hits, plain.reason)
    else:
        assert (scoped.allowed_hits, scoped.reason, scoped.drawn) == ("off", Bypassed.NO_USER, True)
