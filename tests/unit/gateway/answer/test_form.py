"""What an answer is checked against, and what becomes of one that does not match."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.answer.backends import Fallbacks
from services.gateway.errors import FormBroken
from services.gateway.output_validation.forms import Checked, Forms, mismatch
from services.gateway.output_validation.mismatch import Mismatch, Unchecked
from services.runtime.errors import Unavailable
from tests.unit.gateway.answer.scene import EXACT, MISS, Scene, outcomes
from tests.unit.gateway.answer.test_cascade import made, said_of
from tests.unit.gateway.reading import sent_by
from tests.unit.gateway.scripted import ScriptedCache, ScriptedLlm, finish, text

LENGTH = chat_pb2.FINISH_REASON_LENGTH
Format = chat_pb2.ResponseFormat
_MOST_S = 0.2
CHOICE = chat_pb2.Choice(values=["yes", "no"])


def form(schema: Any) -> chat_pb2.ResponseFormat:
    return Format(json_schema=json.dumps(schema))


SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (form(SUM), ' {"sum": 5}\n'),
        (form({"items": [{"type": "string"}], "$schema": DRAFT_7}), '["a", 1]'),
        (form({"prefixItems": [{"type": "string"}]}), '["a", 1]'),
        (form({"pattern": r"^\p{L}+$"}), '"Zürich"'),
        (form({"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False}), '{"x-a": 1}'),
        (form({"uniqueItems": True}), '[1, true, "1", [1], [true], {"a": null}, {}]'),
        (form({"enum": [1, {"a": []}]}), '{"a": []}'),
        (form({"format": "date"}), '"no date"'),  # told, and not held to: as JSON Schema has it
        (form({"type": "object", "properties": {"n": {"$ref": "#"}}}), '{"n": ' * 50 + "{}" + "}" * 50),
        (Format(json_object=True), "{}"),
        (Format(json_object=False), "prose"),
        (Format(regex="[0-9]{3}"), "123"),
        (Format(choice=CHOICE), "no"),
        (Format(grammar='start: "a"'), "held by the engine alone"),
        (Format(), "prose"),
    ],
)
def test_what_matches_passes(wanted: chat_pb2.ResponseFormat, said: str) -> None:
    assert mismatch(wanted, said, _MOST_S) is None


@pytest.mark.parametrize(
    ("wanted", "said", "where"),
    [
        (form(SUM), "five", "it is no JSON"),
        (form(SUM), '```json\n{"sum": 5}\n```', "it is no JSON"),
        (form(SUM), '{"sum": 5', "it is no JSON"),
        (form(SUM), '{"sum": 5, "sum": 5}', "it is no JSON"),
        (form(SUM), "[" * 100_000, "it is no JSON"),
        (form(SUM), '{"sum": "5"}', "#/properties/sum/type"),
        (form(SUM), '{"total": 5}', "#/required"),
        (form(SUM), '{"sum": 5, "and": 1}', "#/additionalProperties"),
        (form({"patternProperties": {"^x-": {"type": "integer"}}}), '{"x-a": "1"}', "#/patternProperties/^x-/type"),
        (form({"pattern": "^a+$"}), '"ab"', "#/pattern"),
        (form({"uniqueItems": True}), '[{"a": 1}, {"a": 1.0}]', "#/uniqueItems"),
        (form({"$defs": {"n": {"minimum": 3}}, "items": {"$ref": "#/$defs/n"}}), "[3, 2]", "#/items/minimum"),
        (Format(json_object=True), "[]", "it is no JSON object"),
        (Format(regex="[0-9]{3}"), "1234", "it does not match the regular expression"),
        (Format(choice=CHOICE), "No", "it is none of the choices"),
        (Format(choice=CHOICE), "no ", "it is none of the choices"),
        (Format(choice=CHOICE), "", "it is none of the choices"),
    ],
)
def test_what_does_not_match_is_told_without_a_word_of_it(
    wanted: chat_pb2.ResponseFormat, said: str, where: str
) -> None:
    found = mismatch(wanted, said, _MOST_S)
    assert found
    assert found.where == where


_DOUBLED = {f"a{depth}": {"allOf": [{"$ref": f"#/$defs/a{depth + 1}"}] * 2} for depth in range(18)}
_SLOW = "(?:a?){5000}a{5000}"
_LONG = json.dumps("a" * 5_000)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Format(regex=_SLOW), "a" * 5_000),
        (form({"pattern": _SLOW}), _LONG),
        (form({"patternProperties": {_SLOW: True}}), f"{{{_LONG}: 1}}"),
        (form({"patternProperties": {_SLOW: True}, "additionalProperties": False}), f"{{{_LONG}: 1}}"),
        (form({"additionalProperties": False, "patternProperties": {_SLOW: True}}), f"{{{_LONG}: 1}}"),
        (form({"unevaluatedProperties": False, "patternProperties": {_SLOW: True}}), f"{{{_LONG}: 1}}"),
        (form({"$defs": {**_DOUBLED, "a18": {"type": "string"}}, "$ref": "#/$defs/a0"}), '"x"'),
        (form({"$ref": "#"}), '"x"'),
        (form({"anyOf": [{"$ref": "#"}] * 3}), '"x"'),
        # Another dialect inside would bring its own keywords, wherever a reference finds it.
        (form({"properties": {"x": {"$schema": DRAFT_7, "pattern": _SLOW}}}), f'{{"x": {_LONG}}}'),
        (form({"enum": [{"$schema": DRAFT_7, "pattern": _SLOW}], "$ref": "#/enum/0"}), _LONG),
        (form({"$schema": DRAFT_7, "items": {"pattern": _SLOW}}), f"[{_LONG}]"),
        (form({"$ref": "http://127.0.0.1:9/schema"}), '"x"'),
        (form({"$id": "http://127.0.0.1:9/", "$ref": "schema"}), '"x"'),
        (form({"$dynamicRef": "http://127.0.0.1:9/schema"}), '"x"'),
        (form({"type": "objekt"}), "1"),
        (form({"items": "string"}), "[1]"),
        (form({"pattern": "["}), '"x"'),
        (Format(regex="(" * 1_000 + ")" * 1_000), "x"),
        (Format(regex="a*"), "a" * 1_000_001),
    ],
)
def test_what_would_take_too_long_or_leads_elsewhere_is_not_checked(wanted: chat_pb2.ResponseFormat, said: str) -> None:
    with pytest.raises(Unchecked):
        mismatch(wanted, said, 0.05)


@pytest.mark.parametrize("items", ["{}", "[[]]", '{"a": [1]}'])
def test_unique_items_cost_no_more_than_there_are(items: str) -> None:
    said = json.dumps([[json.loads(items), number] for number in range(20_000)])
    assert mismatch(form({"uniqueItems": True}), said, 5) is None


async def test_a_check_runs_beside_the_event_loop_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def noted(*given: Any) -> Mismatch | None:
        ran.append(threading.current_thread())
        return mismatch(*given)

    monkeypatch.setattr("services.gateway.output_validation.forms.mismatch", noted)
    others = asyncio.create_task(asyncio.sleep(0))
    with pytest.raises(Unchecked):
        await Forms(50).mismatch("acme", 1, Format(regex=_SLOW), "a" * 5_000, 5)
    assert others.done()
    assert ran != [threading.main_thread()]


async def test_nobody_waits_longer_for_a_check_than_an_answer_has() -> None:
    def never(*_: Any) -> asyncio.Future[Checked]:
        return asyncio.get_running_loop().create_future()

    with pytest.raises(Unchecked, match="there was no time to check it"):
        await Forms(beside=never).mismatch("acme", 1, form(SUM), "{}", 0.01)


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
    raise AssertionError("it was given")


def told(error: FormBroken) -> list[tuple[str, str]]:
    return [(each["policy"], each["action"]) for each in json.loads(error.metadata["decisions"])]


@pytest.mark.paused
async def test_an_answer_that_matches_is_told_so_and_kept() -> None:
    asked = scene(FIVE, cache=ScriptedCache(MISS))
    final = await asked.final(**WANTED)
    assert (final.text, made(final), outcomes(final)["form"]) == (FIVE, [("form", "valid")], "OK")
    assert not final.degraded
    assert len(asked.write_behind.stored) == 1


@pytest.mark.paused
@pytest.mark.parametrize("said", [PROSE, '{"sum": "5"}'])
async def test_an_answer_that_does_not_is_an_error_with_where_and_no_word_of_it(said: str) -> None:
    asked = scene(said, cache=ScriptedCache(MISS))
    error, events = await broken(asked)
    assert said_of(events) == ["", said[:5], said]
    assert not any(event.HasField("final") for event in events)
    assert told(error) == [("form", "failed")]
    assert "five" not in error.message
    assert '"5"' not in error.message
    assert not asked.write_behind.stored
    assert len(asked.llms["small"].calls) == 1
    assert asked.billed == [10]


@pytest.mark.paused
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


@pytest.mark.paused
async def test_an_answer_is_repaired_once_and_not_twice() -> None:
    asked = scene(PROSE, '{"sum": "5"}', FIVE)
    error, events = await broken(asked, repair=True)
    assert told(error) == [("form", "failed")]
    assert "asked again: #/properties/sum/type" in error.message
    assert said_of(events)[-1] == PROSE
    assert not [event for event in events if event.HasField("patch")]
    assert len(asked.llms["small"].calls) == 2


@pytest.mark.paused
@pytest.mark.parametrize("then", [(Unavailable("gone"),), (None,), (finish("{", LENGTH),)])
async def test_an_answer_is_an_error_where_nothing_comes_of_the_repair(then: tuple[Any, ...]) -> None:
    asked = scene(PROSE)
    asked.llms["small"]._scripts.append(then)
    error, _ = await broken(asked, repair=True)
    assert "asked again" in error.message


@pytest.mark.paused
async def test_an_answer_is_not_repaired_without_the_time_for_it() -> None:
    asked = scene(PROSE, FIVE, pause_s=0.6)
    error, _ = await broken(asked, repair=True)
    assert "it took 600 ms, and 390 ms are left" in error.message
    assert len(asked.llms["small"].calls) == 1


@pytest.mark.paused
async def test_an_answer_is_not_repaired_where_a_model_may_be_asked_once() -> None:
    asked = scene(PROSE, FIVE)
    await broken(asked, repair=True, single_attempt=True)
    assert len(asked.llms["small"].calls) == 1


@pytest.mark.paused
async def test_an_answer_of_a_batch_is_repaired_unless_it_must_not_be() -> None:
    for repair, calls in ((None, 2), (False, 1)):
        asked = scene(PROSE, FIVE)
        answer = asked.answer(**WANTED, repair=repair)
        answer._draft.placed = lambda: None
        try:
            async for _ in sent_by(answer.give):
                pass
        except FormBroken:
            assert repair is False
        assert len(asked.llms["small"].calls) == calls


HELD = {"response_format": Format(grammar='start: "(" start ")" | "x"')}


@pytest.mark.paused
async def test_a_grammar_is_held_by_the_engine_that_ended_the_answer_by_itself() -> None:
    asked = scene("(x)", cache=ScriptedCache(MISS))
    final = await asked.final(**HELD, repair=True)
    assert (final.text, made(final), list(final.degraded)) == ("(x)", [("form", "held")], [])


@pytest.mark.paused
async def test_an_answer_of_a_grammar_that_was_cut_says_so() -> None:
    final = await scene("((", cache=ScriptedCache(MISS), reason=LENGTH).final(**HELD, repair=True)
    assert (made(final), list(final.degraded)) == ([("form", "failed")], ["form:cut"])


@pytest.mark.paused
async def test_a_choice_that_is_none_is_asked_for_again_with_all_there_are() -> None:
    asked = scene("No.", "no")
    final = await asked.final(response_format=Format(choice=CHOICE), repair=True)
    assert (final.text, made(final)) == ("no", [("form", "repaired")])
    assert asked.llms["small"].requests[1].messages[-1].content.endswith("letter for letter:\nyes\nno")


@pytest.mark.paused
async def test_an_answer_that_is_cut_says_so_and_is_not_kept() -> None:
    asked = scene('{"sum": ', cache=ScriptedCache(MISS), reason=LENGTH)
    final = await asked.final(**WANTED, repair=True)
    assert (final.text, final.finish_reason) == ('{"sum": ', LENGTH)
    assert (made(final), list(final.degraded)) == ([("form", "failed")], ["form:cut"])
    assert not asked.write_behind.stored
    assert len(asked.llms["small"].calls) == 1


@pytest.mark.paused
async def test_an_answer_that_is_cut_where_it_matches_is_whole() -> None:
    final = await scene(FIVE, reason=LENGTH).final(**WANTED)
    assert (made(final), list(final.degraded)) == ([("form", "valid")], [])


@pytest.mark.paused
async def test_an_answer_that_nobody_can_check_is_given_and_not_kept() -> None:
    asked = scene(FIVE, cache=ScriptedCache(MISS))
    final = await asked.final(response_format=form({"$ref": "#"}))
    assert (final.text, made(final)) == (FIVE, [("form", "unchecked")])
    assert list(final.degraded) == ["form:unchecked"]
    assert not asked.write_behind.stored


@pytest.mark.paused
async def test_an_answer_of_the_cache_was_checked_before() -> None:
    final = await scene(FIVE, cache=ScriptedCache(EXACT)).final(**WANTED)
    assert final.text == "Paris."
    assert not made(final)


@pytest.mark.paused
async def test_an_answer_that_the_guard_looks_through_is_replaced_by_what_it_has_looked_through() -> None:
    asked = scene(PROSE, '{"sum": 5, "of": "ada@example.org"}')
    wanted = form({"type": "object", "required": ["sum"]})
    guard = pb.GuardPolicy(answer_personal=pb.GUARD_ACTION_MASK)
    events = await asked.events(response_format=wanted, repair=True, guard=guard)
    assert said_of(events)[-1] == events[-1].final.text == '{"sum": 5, "of": "[email 1]"}'


@pytest.mark.paused
async def test_an_answer_and_its_equal_share_a_repair() -> None:
    asked = scene(PROSE, FIVE, cache=ScriptedCache(MISS))
    both = await asyncio.gather(asked.final(**WANTED, repair=True), asked.final(**WANTED, repair=True))
    assert [final.text for final in both] == [FIVE, FIVE]
    assert len(asked.llms["small"].calls) == 2
    assert len(asked.write_behind.stored) == 1
