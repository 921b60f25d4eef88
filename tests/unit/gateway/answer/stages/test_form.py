"""The validation of an answer, and the repair of one that does not match its response format."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.backends import Fallbacks
from services.gateway.errors import FormBroken
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene, outcomes
from tests.unit.gateway.answer.stages.cascades import made, said_of
from tests.unit.gateway.output_validation.test_forms import CHOICE, SUM, Format, form
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

pytestmark = pytest.mark.paused

STOP, LENGTH = chat_pb2.FINISH_REASON_STOP, chat_pb2.FINISH_REASON_LENGTH
FIVE, PROSE = '{"sum": 5}', "It is five."
WANTED = {"response_format": form(SUM)}


def scene(*said: str, pause_s: float = 0.1, cache: ScriptedCache | None = None, reason: int = 1) -> Scene:
    """A model that says one after the other, however it is asked."""
    scripts = [[text(each[:5]), pause_s, finish(each[5:], reason)] for each in said]
    return Scene(cache, fallbacks=Fallbacks(()), small=ScriptedLlm(scripts=scripts), large=ScriptedLlm())


async def broken(scene_: Scene, **fields: Any) -> tuple[FormBroken, list[pb.Event]]:
    events: list[pb.Event] = []
    try:
        async for message in sent_by(scene_.answer(**WANTED, **fields).give):
            events += message.events
    except FormBroken as error:
        return error, events
    raise AssertionError("the broken answer was sent")


def decisions_in(error: FormBroken) -> list[tuple[str, str]]:
    return [(each["policy"], each["action"]) for each in json.loads(error.metadata["decisions"])]


async def test_an_answer_that_matches_is_reported_as_valid_and_kept() -> None:
    asked = scene(FIVE, cache=ScriptedCache(MISS))
    final = await asked.final(**WANTED)
    assert (final.text, made(final), outcomes(final)["form"]) == (FIVE, [("form", "valid")], "OK")
    assert not final.degraded
    assert len(asked.write_behind.stored) == 1


@pytest.mark.parametrize("said", [PROSE, '{"sum": "5"}'])
async def test_an_answer_that_does_not_is_an_error_with_where_and_no_word_of_it(said: str) -> None:
    asked = scene(said, cache=ScriptedCache(MISS))
    error, events = await broken(asked)
    assert said_of(events) == ["", said[:5], said]
    assert not any(event.HasField("final") for event in events)
    assert decisions_in(error) == [("form", "failed")]
    assert "five" not in error.message
    assert '"5"' not in error.message
    assert not asked.write_behind.stored
    assert len(asked.llms["small"].calls) == 1
    assert asked.billed == [10]


async def test_an_answer_that_was_not_checked_is_stored_for_requests_without_a_check() -> None:
    asked = scene(PROSE, PROSE, FIVE, cache=ScriptedCache(MISS))
    asked.tenant = replace(asked.tenant, check_forms=False)
    assert [(await asked.final(**WANTED)).text for _ in range(2)] == [PROSE, PROSE]
    assert (await asked.final(**WANTED, repair=False)).text == FIVE
    unchecked, equal, checked = [stored.question for stored in asked.write_behind.stored]
    assert unchecked == equal != checked


async def test_an_answer_is_repaired_once_where_that_is_wanted() -> None:
    asked = scene(PROSE, FIVE, cache=ScriptedCache(MISS))
    events = await asked.events(**WANTED, repair=True)
    assert said_of(events) == ["", "It is", PROSE, FIVE]
    final = events[-1].final
    assert (final.text, made(final), outcomes(final)["form"]) == (FIVE, [("form", "repaired")], "REPLACED")
    assert [event.patch.stage for event in events if event.HasField("patch")] == ["form"]
    assert not final.patches
    assert asked.billed == [20]
    again = asked.llms["small"].requests[1]
    assert again.response_format == form(SUM)
    assert [message.content for message in again.messages][-2] == PROSE
    assert "it is no JSON" in again.messages[-1].content
    assert json.dumps(SUM) in again.messages[-1].content
    assert [stored.answer.text for stored in asked.write_behind.stored] == [FIVE]


async def test_an_answer_is_repaired_once_and_not_twice() -> None:
    asked = scene(PROSE, '{"sum": "5"}', FIVE)
    error, events = await broken(asked, repair=True)
    assert decisions_in(error) == [("form", "failed")]
    assert "repair failed: #/properties/sum/type" in error.message
    assert said_of(events)[-1] == PROSE
    assert not [event for event in events if event.HasField("patch")]
    assert len(asked.llms["small"].calls) == 2


@pytest.mark.parametrize("then", [(Unavailable("gone"),), (None,), (finish("{", LENGTH),)])
async def test_an_answer_is_an_error_where_nothing_comes_of_the_repair(then: tuple[Any, ...]) -> None:
    asked = scene(PROSE)
    asked.llms["small"]._scripts.append(then)
    error, _ = await broken(asked, repair=True)
    assert "repair failed" in error.message


@pytest.mark.parametrize(
    ("fields", "in_background", "pause_s", "why"),
    [
        ({"repair": True}, False, 0.6, "the answer took 600 ms, 390 ms are left"),
        ({"repair": True, "single_attempt": True}, False, 0.1, "`single_attempt` permits no repair"),
        ({}, False, 0.1, "repair is off"),
        ({"repair": False}, True, 0.1, "repair is off"),
        ({}, True, 0.1, ""),
    ],
    ids=["no time", "a single attempt", "not asked for", "a batch that refuses", "a batch"],
)
async def test_an_answer_is_repaired_where_that_is_wanted_and_possible(
    fields, in_background: bool, pause_s: float, why: str
):
    asked = scene(PROSE, FIVE, pause_s=pause_s)
    answer = asked.answer(on_slot=(lambda: None) if in_background else None, **WANTED, **fields)
    message = ""
    try:
        async for _ in sent_by(answer.give):
            pass
    except FormBroken as error:
        message = error.message
    assert message.endswith(why)
    assert bool(message) is bool(why)
    assert len(asked.llms["small"].calls) == (1 if why else 2)


CONSTRAINED = {"response_format": Format(grammar='start: "(" start ")" | "x"')}


@pytest.mark.parametrize(
    ("said", "ended", "wanted", "action", "degraded"),
    [
        ("(x)", STOP, CONSTRAINED, "constrained", []),
        ("((", LENGTH, CONSTRAINED, "failed", ["form:cut"]),
        ('{"sum": ', LENGTH, WANTED, "failed", ["form:cut"]),
        (FIVE, LENGTH, WANTED, "valid", []),
        (FIVE, STOP, {"response_format": form({"$ref": "#"})}, "unchecked", ["form:unchecked"]),
    ],
    ids=["the engine followed a grammar", "cut of a grammar", "cut", "whole where it was cut", "not checkable"],
)
async def test_an_incomplete_or_unchecked_answer_is_degraded_and_not_stored(
    said: str, ended: int, wanted: dict[str, Any], action: str, degraded: list[str]
) -> None:
    asked = scene(said, cache=ScriptedCache(MISS), reason=ended)
    final = await asked.final(**wanted, repair=True)
    assert (final.text, final.finish_reason) == (said, ended)
    assert (made(final), list(final.degraded)) == ([("form", action)], degraded)
    assert len(asked.write_behind.stored) == (ended == STOP and not degraded)
    assert len(asked.llms["small"].calls) == 1


async def test_a_choice_that_is_none_is_asked_for_again_with_all_there_are() -> None:
    asked = scene("No.", "no")
    final = await asked.final(response_format=Format(choice=CHOICE), repair=True)
    assert (final.text, made(final)) == ("no", [("form", "repaired")])
    assert asked.llms["small"].requests[1].messages[-1].content.endswith("letter for letter:\nyes\nno")


async def test_an_answer_of_the_cache_was_checked_before() -> None:
    final = await scene(FIVE, cache=ScriptedCache(EXACT)).final(**WANTED)
    assert final.text == "Paris."
    assert not made(final)


async def test_an_answer_that_the_guard_looks_through_is_replaced_by_what_it_has_looked_through() -> None:
    asked = scene(PROSE, '{"sum": 5, "of": "ada@example.org"}')
    wanted = form({"type": "object", "required": ["sum"]})
    guard = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_MASK)
    events = await asked.events(response_format=wanted, repair=True, guard=guard)
    assert said_of(events)[-1] == events[-1].final.text == '{"sum": 5, "of": "[email 1]"}'


@pytest.mark.parametrize("action", [pb.GUARD_ACTION_MASK, pb.GUARD_ACTION_REFUSE])
async def test_a_repaired_answer_that_the_guard_breaks_is_an_error(action: pb.GuardAction) -> None:
    asked = scene(PROSE, '{"sum": 4111111111111111}')
    error, _ = await broken(asked, repair=True, guard=pb.GuardPolicy(answer_personal=action))
    assert "repair failed: it is no JSON" in error.message


async def test_an_answer_and_its_equal_share_a_repair() -> None:
    asked = scene(PROSE, FIVE, cache=ScriptedCache(MISS))
    both = await asyncio.gather(asked.final(**WANTED, repair=True), asked.final(**WANTED, repair=True))
    assert [final.text for final in both] == [FIVE, FIVE]
    assert len(asked.llms["small"].calls) == 2
    assert len(asked.write_behind.stored) == 1
