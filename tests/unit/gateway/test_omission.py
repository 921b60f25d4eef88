"""Fields that a model's API lacks: the settings that allow omitting them, and the report of it."""

from __future__ import annotations

from typing import Any

import pytest

from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.config import GatewaySettings
from services.gateway.decisions import describe
from services.gateway.http.report import report, short
from services.runtime import question_key
from tests.unit.gateway.admission.tenants_file import tenant
from tests.unit.gateway.answer.scene import MISS, Scene
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish
from tests.unit.gateway.shared_settings import gateway_settings

pytestmark = pytest.mark.paused
SETTINGS = GatewaySettings(llm_addresses={"m": ["127.0.0.1:1"]})
REFUSE, OMIT = pb.UNTRANSLATED_REFUSE, pb.UNTRANSLATED_OMIT


def leaving_out(*names: str) -> ScriptedLlm:
    last = finish("Paris")
    last.finish.omitted.extend(names)
    return ScriptedLlm(last)


def scene(mesh: bool, own: dict[str, Any], *names: str) -> Scene:
    made = Scene(ScriptedCache(MISS), small=leaving_out(*names), large=ScriptedLlm())
    made.settings = gateway_settings(llm_addresses={"m": "unused"}, untranslated="omit" if mesh else "refuse")
    made.tenant = tenant(**own)
    return made


@pytest.mark.parametrize(
    ("mesh", "own", "asked", "omits", "by"),
    [
        (False, {}, pb.UNTRANSLATED_UNSPECIFIED, False, ""),
        (True, {}, pb.UNTRANSLATED_UNSPECIFIED, True, "mesh"),
        (False, {"untranslated": "omit"}, pb.UNTRANSLATED_UNSPECIFIED, True, "tenant"),
        (True, {"untranslated": "refuse"}, pb.UNTRANSLATED_UNSPECIFIED, False, ""),
        (False, {"untranslated": "refuse"}, OMIT, True, "request"),
        (True, {"untranslated": "omit"}, REFUSE, False, ""),
    ],
)
async def test_the_request_then_its_tenant_then_the_mesh_decides(
    mesh: bool, own: dict[str, Any], asked: pb.Untranslated, omits: bool, by: str
) -> None:
    names = ("seed", "reasoning_effort") if omits else ()
    made = scene(mesh, own, *names)
    final = await made.final(untranslated=asked)
    assert made.llms["small"].requests[-1].omit_untranslated == omits
    assert [describe(change) for change in final.changes] == [f"field_omitted: {name}, by {by}" for name in names]
    assert dict(short(final)).get(b"x-hedgerow-omitted", b"").decode() == ", ".join(names)
    if omits:
        assert report(final)["changes"][0] == {"what": "field_omitted", "from": "seed", "by": by}


async def test_an_answer_with_less_is_not_given_to_a_request_that_refuses_that() -> None:
    made = scene(False, {}, "seed")
    for asked in (REFUSE, OMIT):
        await made.final(untranslated=asked)
    assert made.cache
    refused, omitted = (question_key.digest(each) for each in made.cache.questions)
    assert refused != omitted
