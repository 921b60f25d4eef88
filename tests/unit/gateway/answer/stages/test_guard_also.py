"""What a guard looks through where a setting says so: system messages, a prefix, definitions of tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.errors import GuardRefused
from tests.unit.gateway.answer.stages.guarded import ATTACK, KEY, MINE, guarded, original_for_model, said, searching

pytestmark = pytest.mark.paused

HIDDEN = "My card is [card 1], write to [email 1]."
ALSO = ("system", "prefix", "tools")


def schema(description: str) -> str:
    return json.dumps({"type": "object", "properties": {"to": {"type": "string", "description": description}}})


def asked_with(what: str, words: str) -> dict[str, Any]:
    """A request with these words there."""
    question = said("Hi.")
    if what == "system":
        return {"messages": said(words, role=chat_pb2.ROLE_SYSTEM) + question}
    if what == "prefix":
        return {"messages": question, "prefix": words}
    described = {"description": words} if what == "tools" else {"parameters": schema(words)}
    return {"messages": question, "tools": [chat_pb2.Tool(name="pay", **described)]}


PLACES = pytest.mark.parametrize("what", [*ALSO, "parameters"])


def setting(what: str) -> tuple[str, ...]:
    return ("tools",) if what == "parameters" else (what,)


@PLACES
async def test_private_data_outside_messages_is_masked_where_the_setting_says_so(what: str):
    scene = guarded(personal="mask", also=setting(what))
    final = await scene.final(**asked_with(what, MINE))
    (asked,) = scene.llms["small"].requests
    assert HIDDEN in str(asked)
    assert "4111" not in str(asked)
    if what == "prefix":
        assert final.text.startswith(MINE)  # its client's own words
    if what == "parameters":
        json.loads(asked.tools[0].parameters)
    assert scene.cache.questions == []


@PLACES
async def test_without_the_setting_text_outside_messages_is_not_masked(what: str):
    others = tuple(each for each in ALSO if each not in setting(what))
    scene = guarded(personal="mask", injection="refuse", also=others)
    await scene.final(**asked_with(what, f"{MINE} {ATTACK}"))
    assert f"{MINE} {ATTACK}" in str(scene.llms["small"].requests[0])


@PLACES
@pytest.mark.parametrize(("words", "guard"), [(ATTACK, {"injection": "refuse"}), (KEY, {"secrets": "refuse"})])
async def test_a_request_is_refused_for_what_is_there(what: str, words: str, guard: dict[str, str]):
    scene = guarded(also=setting(what), **guard)
    with pytest.raises(GuardRefused):
        await scene.final(**asked_with(what, words))
    assert scene.llms["small"].requests == []


async def test_private_data_of_tools_does_not_go_to_a_provider_in_the_callers_own_words():
    scene = guarded(personal="mask", also=("tools",))
    given = {"type": "function", "function": {"name": "pay", "parameters": json.loads(schema(MINE))}}
    own = original_for_model({"messages": [], "tools": [given], "seed": 7})
    await scene.final(original=own, **asked_with("parameters", MINE))
    (asked,) = scene.llms["small"].requests
    assert json.loads(asked.original.body) == {"seed": 7}


@pytest.mark.parametrize("place", ["tools__examples", "system__cache", "instructions"])
async def test_parts_that_only_a_provider_reads_are_looked_through_as_well(place: str):
    scene = guarded(secrets="refuse", also=("tools", "system"))
    with pytest.raises(GuardRefused):
        await scene.final(messages=said("Hi."), original=original_for_model({}, **{place: [KEY]}))


async def test_a_description_of_a_source_that_gives_orders_is_not_offered():
    source, scene = searching(injection="refuse", also=("tools",))
    source.extras["search"] = {"tool": {"name": "search", "description": ATTACK}}
    with pytest.raises(GuardRefused):
        await scene.final(messages=said("Hi."), mesh_tools=[pb.MeshTool(name="search", offered=True)])
    assert scene.llms["small"].requests == []
