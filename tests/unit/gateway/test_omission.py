"""Fields that a model's API does not have: who decides whether they are left out, and what is told of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.admission.validation import check
from services.gateway.changes import told
from services.gateway.config import GatewaySettings
from services.gateway.http.account import account, short
from services.gateway.http.chat_request import read_chat
from services.gateway.http.fields import parse
from services.runtime import question_key
from services.runtime.errors import InvalidInput
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish
from tests.unit.gateway.test_answer import MISS, Scene
from tests.unit.gateway.test_three_levels import tenant

pytestmark = pytest.mark.paused
SETTINGS = GatewaySettings(llm_addresses={"m": ["127.0.0.1:1"]})
REFUSE, OMIT = pb.UNTRANSLATED_REFUSE, pb.UNTRANSLATED_OMIT


def leaving_out(*names: str) -> ScriptedLlm:
    last = finish("Paris")
    last.finish.omitted.extend(names)
    return ScriptedLlm(last)


def scene(mesh: bool, own: dict[str, Any], *names: str) -> Scene:
    made = Scene(ScriptedCache(MISS), small=leaving_out(*names), large=ScriptedLlm())
    made.backends = replace(made.backends, omits=mesh)
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
    assert [told(change) for change in final.changes] == [f"field_omitted: {name}, by {by}" for name in names]
    assert dict(short(final)).get(b"x-hedgerow-omitted", b"").decode() == ", ".join(names)
    if omits:
        assert account(final)["changes"][0] == {"what": "field_omitted", "from": "seed", "by": by}


async def test_an_answer_with_less_is_not_given_to_a_request_that_refuses_that() -> None:
    made = scene(False, {}, "seed")
    for asked in (REFUSE, OMIT):
        await made.final(untranslated=asked)
    assert made.cache
    refused, omitted = (question_key.digest(each) for each in made.cache.questions)
    assert refused != omitted


def test_it_is_an_option_of_the_request() -> None:
    def read(headers: dict[str, str], **own: str) -> pb.Untranslated:
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "hedgerow": own}
        return read_chat(parse(json.dumps(body).encode()), headers, ["m"]).request.untranslated

    assert read({}, untranslated="omit") == OMIT
    assert read({"x-hedgerow-untranslated": "refuse"}, untranslated="omit") == REFUSE
    with pytest.raises(InvalidInput, match=r"^hedgerow\.untranslated: one of refuse, omit, got 'drop'"):
        read({}, untranslated="drop")


def test_another_number_is_refused() -> None:
    asked = chat_pb2.Message(role=chat_pb2.ROLE_USER, content="?")
    with pytest.raises(InvalidInput, match=r"^untranslated: an Untranslated, 0 to 2, got 7"):
        check(pb.GenerateRequest(messages=[asked], untranslated=7), SETTINGS)  # type: ignore[arg-type]
