"""Calls that must be made: what their answer has to match, and how it is read."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from services.llm.engine import Message, Request, Tool, ToolCallDelta, ToolChoice
from services.llm.vllm.forced_calls import SPACED, ListedCalls, NamedCall, constraint

CITY = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/City"}, "near": {"$ref": "#"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"City": {"enum": ["Oslo", "Rome"]}},
}
WEATHER, CLOCK = Tool("weather", parameters=json.dumps(CITY)), Tool("clock")


def asked(choice: ToolChoice, *, parallel: bool = True) -> Request:
    messages = (Message("user", "Hello."),)
    return Request(messages, tools=(WEATHER, CLOCK), tool_choice=choice, parallel_tool_calls=parallel)


def whole(deltas: list[ToolCallDelta]) -> list[tuple[str, str]]:
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        assert bool(delta.id) == bool(delta.name) == (delta.index == len(calls))
        if delta.id:
            calls.append((delta.name, ""))
        calls[delta.index] = (calls[delta.index][0], calls[delta.index][1] + delta.arguments)
    return calls


def test_a_named_tool_is_called_with_what_its_schema_says() -> None:
    schema = constraint(asked(ToolChoice("named", "weather")))
    assert (schema.kind, schema.field) == ("json_schema", "tools")
    assert json.loads(schema.value) == {**CITY, **SPACED}


def test_a_tool_without_parameters_is_called_without_arguments() -> None:
    schema = json.loads(constraint(asked(ToolChoice("named", "clock"))).value)
    jsonschema.validate({}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"zone": "UTC"}, schema)


@pytest.mark.parametrize(
    ("calls", "valid"),
    [
        ([{"name": "weather", "parameters": {"city": "Oslo", "near": {"city": "Rome"}}}], True),
        ([{"name": "clock", "parameters": {}}, {"name": "clock", "parameters": {}}], True),
        ([{"name": "weather", "parameters": {"city": "Paris"}}], False),
        ([{"name": "weather", "parameters": {"city": "Oslo", "near": {"city": "Paris"}}}], False),
        ([{"name": "tea", "parameters": {}}], False),
        ([], False),
    ],
)
def test_each_call_of_a_list_matches_its_own_tool(calls: object, valid: bool) -> None:
    schema = json.loads(constraint(asked(ToolChoice("required"))).value)
    assert jsonschema.Draft202012Validator(schema).is_valid(calls) == valid


def test_without_parallel_calls_the_schema_admits_one_call() -> None:
    schema = json.loads(constraint(asked(ToolChoice("required"), parallel=False)).value)
    clock = {"name": "clock", "parameters": {}}
    assert jsonschema.Draft202012Validator(schema).is_valid([clock])
    assert not jsonschema.Draft202012Validator(schema).is_valid([clock, clock])


LISTED = ['{"city": "O]s}l\\"o", "near": {"city": ["a"]}}', "{}", "[1, [2]]", '"te\\\\"', "1.5", "null"]


@pytest.mark.parametrize("seed", range(20))
def test_a_list_is_read_however_it_is_cut(seed: int) -> None:
    text = (
        "[ " + " , ".join(f'{{ "name" : "t-{i}" , "parameters" : {value} }}' for i, value in enumerate(LISTED)) + " ]"
    )
    cuts = random.Random(seed)
    reader, deltas = ListedCalls(), []
    while text:
        size = cuts.randint(1, 12)
        deltas += reader.read(text[:size])
        text = text[size:]
    assert whole(deltas) == [(f"t-{i}", value) for i, value in enumerate(LISTED)]


def test_a_list_that_breaks_off_gives_what_there_was() -> None:
    reader = ListedCalls()
    assert reader.read('[{"name": "wea') == []
    assert whole(reader.read('ther", "parameters": {"city": "Os')) == [("weather", '{"city": "Os')]


def test_arguments_alone_are_those_of_the_named_tool() -> None:
    reader = NamedCall("weather")
    assert whole(reader.read('{"city"') + reader.read(': "Oslo"}')) == [("weather", '{"city": "Oslo"}')]
