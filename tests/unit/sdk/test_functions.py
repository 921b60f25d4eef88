from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest

from hedgerow import InvalidArgument, Tool, ToolCall
from hedgerow._request import generate_request
from hedgerow._tool_loop import Functions, ToolLoop, as_text


class Unit(Enum):
    CELSIUS = "c"
    KELVIN = "k"


@dataclass
class Place:
    city: str


def weather(place: Place, days: Annotated[int, "how many"] = 1, *, unit: Unit = Unit.CELSIUS) -> str:
    """The weather.

    In a place.
    """
    return f"{place.city} {days} {unit.name}"


class Callable:
    """Has a name, too."""

    def __call__(self, number: int) -> int:
        return number


def test_a_function_is_a_tool_by_its_types_and_its_docstring() -> None:
    tool = Tool.from_function(weather)
    assert (tool.name, tool.description) == ("weather", "The weather.\n\nIn a place.")
    assert isinstance(tool.parameters, dict)
    assert tool.parameters["required"] == ["place"]
    assert tool.parameters["properties"]["days"] == {"type": "integer", "description": "how many"}
    assert tool.parameters["properties"]["unit"] == {"enum": ["c", "k"]}
    assert generate_request("?", tools=[weather]) == generate_request("?", tools=[tool])
    assert Tool.from_function(Callable()).name == "Callable"


def test_a_call_gets_values_of_the_functions_types() -> None:
    arguments = {"place": {"city": "Oslo"}, "days": 2.0, "unit": "k"}
    assert Functions([weather]).prepared(ToolCall("1", "weather", json.dumps(arguments)))() == "Oslo 2 KELVIN"
    assert Functions([Callable()]).prepared(ToolCall("1", "Callable", '{"number": 3}'))() == 3


@pytest.mark.parametrize("length", [1, 126, 127, 128])
def test_each_request_has_a_key_of_its_own_that_a_gateway_takes(length: int) -> None:
    loop = ToolLoop("?", [weather], 12, None)
    keys = [loop.next_request({"idempotency_key": "k" * length}).get("idempotency_key") for _ in range(12)]
    assert keys[0] is None  # the first one has the caller's
    assert len(set(keys)) == 12
    assert all(len(key) <= 128 for key in keys[1:])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("Oslo", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", r"arguments: an object, got \[\]"),
        ("{}", "arguments: the parameter place, got none"),
        ('{"place": {"city": "Oslo"}, "day": 1}', "arguments: no parameter day"),
        ('{"place": {"city": 1}}', "place.city: string, got 1"),
    ],
)
def test_arguments_that_do_not_match_are_refused(arguments: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}"):
        Functions([weather]).prepared(ToolCall("1", "weather", arguments))


def several(*numbers: int) -> None: ...


def unclear(thing: object) -> None: ...


@pytest.mark.parametrize(("function", "problem"), [(several, "parameters that have names"), (unclear, "thing: a data")])
def test_a_function_that_cannot_be_described_is_refused_by_name(function: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^tool {function.__name__}: {problem}"):
        Tool.from_function(function)


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="two of the name weather"):
        Functions([weather, weather])


def test_a_result_that_is_no_text_is_json_for_the_model() -> None:
    assert [as_text(each) for each in ("a", 3, {"a": Place("Oslo")}, None)] == [
        "a",
        "3",
        '{"a": {"city": "Oslo"}}',
        "null",
    ]
