from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pydantic
import pytest
from jsonschema import Draft202012Validator

from hedgerow._shapes import Mismatch, Unsupported, parse, schema_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Part:
    name: str
    price: float = 0.0


@dataclass
class Order:
    number: int
    parts: list[Part]
    colour: Colour
    size: Literal["s", "l"]
    note: str | None = None
    paid: bool = False
    tags: tuple[str, ...] = ()
    stock: dict[str, int] = field(default_factory=dict, metadata={"description": "by warehouse"})
    extra: Any = None
    marks: Sequence[int] = ()


@dataclass
class Endless:
    inner: Endless | None = None


WHOLE = {
    "number": 7,
    "parts": [{"name": "axle", "price": 2}],
    "colour": "blue",
    "size": "s",
    "note": None,
    "paid": True,
    "tags": ["a"],
    "stock": {"Oslo": 3},
    "extra": {"a": [1]},
    "marks": [1],
}


def test_values_that_the_schema_admits_are_parsed() -> None:
    Draft202012Validator.check_schema(schema := schema_of(Order))
    Draft202012Validator(schema).validate(WHOLE)
    expected = Order(7, [Part("axle", 2.0)], Colour.BLUE, "s", None, True, ("a",), {"Oslo": 3}, {"a": [1]}, [1])
    assert parse(Order, json.dumps(WHOLE)) == expected
    assert schema["properties"]["stock"]["description"] == "by warehouse"


def test_fields_with_a_default_may_be_left_out() -> None:
    least = {name: WHOLE[name] for name in ("number", "parts", "colour", "size")}
    assert schema_of(Order)["required"] == list(least)
    assert parse(Order, json.dumps(least)) == Order(7, [Part("axle", 2.0)], Colour.BLUE, "s")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": "7"}, "number: integer, got '7'"),
        ({"number": True}, "number: integer, got True"),
        ({"parts": [{"price": 1}]}, r"parts\[0\]: the field name, got none"),
        ({"parts": {}}, "parts: an array, got {}"),
        ({"colour": "green"}, "colour: 'green' is not a valid Colour"),
        ({"size": "m"}, "size: one of 's', 'l', got 'm'"),
        ({"note": 1}, "note: string, got 1; note: null, got 1"),
        ({"other": 1}, "Order: no field other"),
        ({"stock": {"Oslo": "3"}}, "stock.Oslo: integer, got '3'"),
    ],
)
def test_a_mismatch_is_refused_by_its_path(change: dict[str, Any], problem: str) -> None:
    given = WHOLE | change
    assert not Draft202012Validator(schema_of(Order)).is_valid(given)
    with pytest.raises(Mismatch, match=f"^{problem}"):
        parse(Order, json.dumps(given))


def test_a_whole_float_is_an_integer_as_in_a_json_schema() -> None:
    assert parse(int, "7.0") == 7
    with pytest.raises(Mismatch):
        parse(int, "7.5")


class Inner(pydantic.BaseModel):
    number: int


class Outer(pydantic.BaseModel):
    inner: Inner


@dataclass
class Simple:
    inner: Inner


@dataclass
class Nested:
    outer: Outer


def test_a_model_of_pydantics_may_be_a_field() -> None:
    assert schema_of(Simple)["properties"]["inner"]["required"] == ["number"]
    assert parse(Simple, '{"inner": {"number": 7}}') == Simple(Inner(number=7))
    assert parse(Outer, '{"inner": {"number": 7}}') == Outer(inner=Inner(number=7))


@pytest.mark.parametrize("kind", [object, set[int], tuple[int, str], dict[int, str], Endless, Nested])
def test_a_type_without_a_schema_is_refused(kind: Any) -> None:
    with pytest.raises(Unsupported):
        schema_of(kind)
