"""Whether a text matches a response format, within a time and beside the event loop."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from services.gateway.output_validation.forms import Checked, Forms, mismatch
from services.gateway.output_validation.mismatch import Mismatch, Unchecked

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
        (form({"format": "date"}), '"no date"'),  # shown to the model, and not enforced: as JSON Schema has it
        (form({"type": "object", "properties": {"n": {"$ref": "#"}}}), '{"n": ' * 50 + "{}" + "}" * 50),
        (Format(json_object=True), "{}"),
        (Format(json_object=False), "prose"),
        (Format(regex="[0-9]{3}"), "123"),
        (Format(choice=CHOICE), "no"),
        (Format(grammar='start: "a"'), "constrained by the engine alone"),
        (Format(), "prose"),
    ],
)
def test_an_answer_that_matches_its_format_passes(wanted: chat_pb2.ResponseFormat, said: str) -> None:
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
def test_a_mismatch_is_reported_without_a_word_of_the_answer(
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
        (form({"uniqueItems": True}), json.dumps([number * (2**61 - 1) for number in range(8_000)])),  # of one hash
        (Format(regex="(" * 1_000 + ")" * 1_000), "x"),
        (Format(regex="a*"), "a" * 1_000_001),
    ],
)
def test_a_slow_or_remote_schema_is_not_checked(wanted: chat_pb2.ResponseFormat, said: str) -> None:
    with pytest.raises(Unchecked):
        mismatch(wanted, said, 0.05)


@pytest.mark.parametrize("items", ["{}", "[[]]", '{"a": [1]}'])
def test_unique_items_cost_no_more_than_there_are(items: str) -> None:
    said = json.dumps([[json.loads(items), number] for number in range(5_000)])
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


async def test_no_answer_waits_for_a_check_beyond_its_time() -> None:
    def never(*_: Any) -> asyncio.Future[Checked]:
        return asyncio.get_running_loop().create_future()

    with pytest.raises(Unchecked, match="there was no time to check it"):
        await Forms(beside=never).mismatch("acme", 1, form(SUM), "{}", 0.01)
