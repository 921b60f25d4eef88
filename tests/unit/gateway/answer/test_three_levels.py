"""Each part of a profile, set by the mesh, by a tenant and by a request: which level wins, and what the report
shows."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.effective import Budget, note_asked, with_token_limit
from services.gateway.answer.backends import Prompts
from services.gateway.answer.summaries import Summaries
from services.gateway.decisions import Changed, describe
from services.gateway.settings.prompt import PromptSettings
from tests.unit.gateway.admission.tenants_file import tenant
from tests.unit.gateway.answer.scene import SETTINGS, Scene
from tests.unit.gateway.answer.stages.test_prompt_stage import asked_of
from tests.unit.gateway.prompt.conversations import WORDY, chatter, said
from tests.unit.gateway.scripted import ScriptedLlm, finish

pytestmark = pytest.mark.paused
SUMS_UP, CUTS, WHOLE = (
    PromptSettings(summary_model="large"),
    PromptSettings(),
    PromptSettings(whole=True, summary_model="large"),
)


def made(final: pb.Final) -> list[str]:
    return [describe(change) for change in final.changes]


@pytest.mark.parametrize(
    ("mesh", "own", "asked", "compressed", "by"),
    [
        ("off", {}, pb.DIET_UNSPECIFIED, (), ""),
        ("system", {}, pb.DIET_UNSPECIFIED, ("system",), "mesh"),
        ("off", {"diet": "system"}, pb.DIET_UNSPECIFIED, ("system",), "tenant"),
        ("system", {"diet": "off"}, pb.DIET_UNSPECIFIED, (), ""),
        ("off", {"diet": "off"}, pb.DIET_SYSTEM, ("system",), "request"),
        ("off", {"diet": "off"}, pb.DIET_ALL, ("system", "user"), "request"),
        ("all", {"diet": "system"}, pb.DIET_OFF, (), ""),
    ],
)
async def test_prompt_compression(
    mesh: Any, own: dict[str, Any], asked: pb.Diet, compressed: tuple[str, ...], by: str
) -> None:
    scene, roles = Scene(), ("system", "user")
    scene.settings = SETTINGS.model_copy(update={"prompt": PromptSettings(diet=mesh)})
    scene.tenant = tenant(prompt=own)
    final = await scene.final(messages=[said(role, WORDY) for role in roles], prompt=pb.PromptPolicy(diet=asked))
    sent = zip(roles, asked_of(scene), strict=True)
    assert tuple(role for role, message in sent if message.content != WORDY) == compressed
    assert [change.by for change in final.changes] == ([by] if by else [])
    assert all(change.what == Changed.PROMPT_COMPRESSED for change in final.changes)


@pytest.mark.parametrize(
    ("mesh", "own", "asked", "became", "by"),
    [
        (WHOLE, {}, pb.TRUNCATION_UNSPECIFIED, "whole", ""),
        (CUTS, {}, pb.TRUNCATION_UNSPECIFIED, "none", "mesh"),
        (SUMS_UP, {}, pb.TRUNCATION_UNSPECIFIED, "ordered", "mesh"),
        (WHOLE, {"conversation": "cut"}, pb.TRUNCATION_UNSPECIFIED, "none", "tenant"),
        (WHOLE, {"conversation": "summarize"}, pb.TRUNCATION_UNSPECIFIED, "ordered", "tenant"),
        (SUMS_UP, {"conversation": "whole"}, pb.TRUNCATION_UNSPECIFIED, "whole", ""),
        (CUTS, {"conversation": "summarize"}, pb.TRUNCATION_UNSPECIFIED, "none", "tenant"),
        (WHOLE, {}, pb.TRUNCATION_AUTO, "ordered", "request"),
        (WHOLE, {"conversation": "whole"}, pb.TRUNCATION_AUTO, "ordered", "request"),
        (WHOLE, {"conversation": "cut"}, pb.TRUNCATION_AUTO, "none", "request"),
        (SUMS_UP, {"conversation": "cut"}, pb.TRUNCATION_DISABLED, "whole", ""),
    ],
)
async def test_a_conversation_that_is_too_long(
    mesh: PromptSettings, own: dict[str, Any], asked: pb.Truncation, became: str, by: str
) -> None:
    llms = {"small": ScriptedLlm(finish("Yes.")), "large": ScriptedLlm(finish("They spoke."))}
    scene = Scene(**llms)
    summaries = Summaries(mesh, scene.backends.models, scene.backends.routes) if mesh.summary_model else None
    scene.backends = replace(scene.backends, prompts=Prompts(summaries=summaries))
    scene.settings = SETTINGS.model_copy(update={"prompt": mesh})
    scene.tenant = tenant(prompt=own)
    final = await scene.final(messages=chatter(40), prompt=pb.PromptPolicy(truncation=asked))
    if became == "whole":
        assert (len(asked_of(scene)), made(final)) == (len(chatter(40)), [])
        return
    assert final.prompt.summary == became
    before, after = final.prompt.turns, final.prompt.turns - final.prompt.dropped_turns
    assert (before, made(final)) == (40, [f"conversation_cut: {before} turns → {after} turns, by {by}"])
    if summaries:
        await summaries.close()


async def test_a_tenants_limit_is_in_the_models_request_and_reported_where_it_cuts() -> None:
    scene = Scene(small=ScriptedLlm(finish("Paris", chat_pb2.FINISH_REASON_LENGTH)), large=ScriptedLlm())
    scene.tenant = tenant(max_tokens=3)
    request, tokens = with_token_limit(pb.GenerateRequest(messages=[said("user", "Hi")]), scene.tenant)
    answer = scene.answer(messages=request.messages, sampling=request.sampling)
    note_asked(answer._ledger.changes, request, scene.tenant, Budget(600_000, tokens=tokens), inf, checks_forms=False)
    final = await answer.give()
    assert describe(final.cut) == "max_tokens: 3 tokens, by tenant"
    (sent,) = scene.llms["small"].requests
    assert (sent.most_tokens, sent.sampling.max_tokens) == (3, 3)
