"""The last event reports changes to a request, and the origin of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.identity import Identity
from services.gateway.answer.backends import Fallbacks
from services.gateway.decisions import By, Changed, Changes, describe
from services.gateway.http.report import report, short
from services.gateway.settings.guard import GuardSettings
from services.gateway.settings.tenants import TenantSettings
from tests.keys import digest
from tests.unit.gateway.answer.scene import ACME, EXACT, MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

pytestmark = pytest.mark.paused
SEMANTIC = cache_pb2.LookupResponse(verdict=cache_pb2.VERDICT_SEMANTIC, answer=EXACT.answer, key=EXACT.key)
LENGTH = chat_pb2.FINISH_REASON_LENGTH


def made(final: pb.Final) -> list[str]:
    return [describe(change) for change in final.changes]


def limited(most: int, used: int = 3, reason: int = LENGTH) -> ScriptedLlm:
    """A model whose service lets answers have so many tokens."""
    last = finish("Paris", reason)
    last.finish.own_max_tokens, last.finish.usage.completion_tokens = most, used
    return ScriptedLlm(last)


async def test_a_request_that_nothing_was_done_to_has_no_changes() -> None:
    final = await Scene(ScriptedCache(MISS)).final()
    assert (made(final), final.HasField("cut")) == ([], False)
    assert not {"changes", "cut"} & report(final).keys()


@pytest.mark.parametrize(("reply", "kind"), [(EXACT, "exact"), (SEMANTIC, "semantic")])
@pytest.mark.parametrize(
    ("policy", "said", "by"),
    [
        (pb.CachePolicy(use=pb.CACHE_USE_ANY), frozenset(), "request"),
        (pb.CachePolicy(), frozenset({"hits.others"}), "tenant"),
        (pb.CachePolicy(), frozenset({"hits.sampled"}), "mesh"),
    ],
)
async def test_a_stored_answer_is_reported_with_the_source_of_its_setting(
    reply: Any, kind: str, policy: Any, said: Any, by: str
):
    scene = Scene(ScriptedCache(reply))
    scene.tenant = replace(scene.tenant, overrides=said)
    final = await scene.final(cache=policy)
    assert made(final) == [f"cache: {kind}, by {by}"]
    assert report(final)["changes"] == [{"what": "cache", "to": kind, "by": by}]


async def test_a_token_limit_of_the_mesh_is_reported_and_differs_from_the_models_own_end() -> None:
    cases = {
        (3, 3, LENGTH): ("max_tokens", "max_tokens; by=mesh"),
        (9, 3, LENGTH): ("", ""),  # the model's context was full before
        (3, 3, chat_pb2.FINISH_REASON_STOP): ("", ""),
        (0, 3, LENGTH): ("", ""),
    }
    for (most, used, reason), (cut, header) in cases.items():
        final = await Scene(small=limited(most, used, reason), large=ScriptedLlm()).final()
        assert made(final) == ([f"max_tokens: {most} tokens, by mesh"] if most else [])
        assert (final.cut.what, dict(short(final)).get(b"x-hedgerow-cut", b"").decode()) == (cut, header)
        assert ("cut" in report(final)) == bool(cut)


async def test_a_limit_says_what_was_asked_for() -> None:
    scene = Scene(small=limited(3), large=ScriptedLlm())
    final = await scene.final(sampling=chat_pb2.Sampling(max_tokens=50))
    assert made(final) == ["max_tokens: 50 tokens → 3 tokens, by mesh"]
    assert report(final)["cut"] == {"what": "max_tokens", "from": "50 tokens", "to": "3 tokens", "by": "mesh"}


@pytest.mark.parametrize(
    ("small", "first_ms", "cut"),
    [
        (ScriptedLlm(None), 400, "first_token_budget: 400 ms, by request"),
        (ScriptedLlm(None), 2_000, "budget: 1000 ms, by tenant"),
        (ScriptedLlm(0.3, text("Pa"), None), 400, "budget: 1000 ms, by tenant"),
    ],
    ids=["no first text", "a limit beyond the budget", "no end"],
)
@pytest.mark.parametrize("template", [False, True])
async def test_a_cut_names_the_limit_of_time_that_was_over(small: ScriptedLlm, first_ms: int, cut: str, template: bool):
    scene = Scene(fallbacks=Fallbacks(["template"] * template), small=small, large=ScriptedLlm())
    answer = scene.answer(first_token_budget_ms=first_ms)
    answer._ledger.changes.limit_time(1_000, 0, By.TENANT)
    answer._ledger.changes.limit_first_text(first_ms, 1_000, By.REQUEST)
    final = await answer.give()
    assert final.finish_reason == chat_pb2.FINISH_REASON_BUDGET
    assert describe(final.cut) == cut
    assert dict(short(final))[b"x-hedgerow-cut"].decode() == f"{final.cut.what}; by={final.cut.by}"
    limited = "first_token_budget: 400 ms, by request"
    assert (limited in made(final)) is (first_ms == 400)


async def test_a_guard_is_reported_with_the_source_of_its_setting() -> None:
    mail = [chat_pb2.Message(role=chat_pb2.ROLE_USER, content="Write to jane@example.org.")]
    scene = Scene()
    asked = await scene.final(messages=mail, guard=pb.GuardPolicy(personal=pb.GUARD_ACTION_MASK))
    assert made(asked) == ["prompt_masked: 1 email, by request"]
    for said, by in ((frozenset(), "mesh"), (frozenset({"guard.personal"}), "tenant")):
        scene.tenant = replace(ACME, guard=GuardSettings(personal="mask"), overrides=said)
        final = await scene.final(messages=mail, guard=pb.GuardPolicy(personal=pb.GUARD_ACTION_MASK))
        assert made(final) == [f"prompt_masked: 1 email, by {by}"]


def test_a_budget_as_long_as_clients_wait_is_no_change() -> None:
    for ms, described in ((600_000, []), (30_000, ["budget: 30000 ms, by mesh"])):
        changes = Changes()
        changes.limit_time(ms, 0, By.MESH)
        assert [describe(change) for change in changes] == described
    cut = Changes()
    cut.limit_time(100, 300, By.TENANT)
    assert [describe(change) for change in cut] == ["budget: 300 ms → 100 ms, by tenant"]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (
            {"diet": ["spaces"], "tokens_before": 9, "tokens_after": 7},
            ["prompt_compressed: 9 tokens → 7 tokens, by mesh"],
        ),
        ({"diet": ["spaces"]}, ["prompt_compressed, by mesh"]),
        ({"dropped_turns": 3, "turns": 5, "summary": "none"}, ["conversation_cut: 5 turns → 2 turns, by mesh"]),
        ({"dropped_turns": 3, "turns": 5, "summary": "ordered"}, ["conversation_cut: 5 turns → 2 turns, by mesh"]),
        ({"dropped_turns": 3, "turns": 5, "summary": "kept"}, ["conversation_summarized: 5 turns → 2 turns, by mesh"]),
        ({"system": "support@3 (simple)"}, ["system_prompt: support@3 (simple), by mesh"]),
        (
            {"diet": ["spaces"], "tokens_before": 9, "tokens_after": 2, "dropped_turns": 3, "turns": 5},
            ["prompt_compressed, by mesh", "conversation_cut: 5 turns → 2 turns, by mesh"],
        ),
    ],
)
def test_changes_of_a_prompt_are_reported(report: dict[str, Any], expected: list[str]) -> None:
    changes = Changes()
    changes.add_prompt(pb.PromptReport(**report))
    assert [describe(change) for change in changes] == expected


def test_a_tenant_knows_which_settings_are_its_own() -> None:
    own = TenantSettings.model_validate(
        {"keys": [digest("k")], "hits": {"others": "any"}, "guard": {"secrets": "mask"}}
    )
    tenant = Identity({"acme": own}, None).tenant("Bearer k")
    assert tenant.overrides == {"hits.others", "guard.secrets"}


def test_the_words_of_changes_are_each_another() -> None:
    assert len({*Changed, *By}) == len(Changed) + len(By)
