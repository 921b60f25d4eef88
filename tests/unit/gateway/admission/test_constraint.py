"""Valid response formats, and the errors for others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.chat.v1.chat_pb2 import Choice, ResponseFormat
from services.gateway.admission.constraint import MOST_COUNTED, check, pattern_size
from services.gateway.settings.response_format import ConstraintSettings
from services.runtime.errors import InvalidInput

LIMITS = ConstraintSettings()
STRING = {"type": "string"}


def as_schema(schema: object) -> ResponseFormat:
    return ResponseFormat(json_schema=schema if isinstance(schema, str) else json.dumps(schema))


def choice(*values: str) -> ResponseFormat:
    return ResponseFormat(choice=Choice(values=values))


def nested(levels: int) -> Any:
    return {"type": "array", "items": nested(levels - 1)} if levels > 1 else STRING


def properties(count: int, of: object = STRING) -> dict[str, Any]:
    return {"properties": {f"p{number}": of for number in range(count)}}


def pattern(text: str) -> dict[str, str]:
    return {"type": "string", "pattern": text}


@pytest.mark.parametrize(
    "honest",
    [
        as_schema(properties(500)),
        as_schema(nested(32)),
        as_schema({"enum": [f"value {number}" for number in range(1_000)]}),
        as_schema({"type": "array", "items": STRING, "minItems": 1, "maxItems": 9_000}),
        as_schema({**properties(20, {"type": "string", "maxLength": 524_288, "minLength": 1})}),  # Claude Code
        as_schema({"$defs": {"tree": {"anyOf": [STRING, {"$ref": "#/$defs/tree"}]}}, "$ref": "#/$defs/tree"}),
        as_schema(properties(20, pattern(r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}$"))),
        as_schema({"const": {"$ref": "http://x", "pattern": "a{99999}", "maxItems": 10**9}}),  # data, no keywords
        as_schema({"properties": {"pattern": STRING, "maxItems": STRING, "$ref": STRING, "enum": STRING}}),
        as_schema({"type": "number", "multipleOf": 0.01, "minimum": -1e300, "maxItems": True}),
        ResponseFormat(regex="[0-9]{3}-[0-9]{4}"),
        ResponseFormat(regex="a" * 2_048),
        choice(*(f"value {number}" for number in range(1_000))),
        choice("x" * 32_768),
        choice(" ", "yes", "😀"),
        ResponseFormat(grammar="x" * 8_192),
        ResponseFormat(json_object=True),
        ResponseFormat(json_object=False),
        ResponseFormat(),
    ],
)
def test_constraints_of_ordinary_size_are_admitted(honest: ResponseFormat):
    check(honest, LIMITS)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", r"JSON \(Expecting value"),
        ("{", r"JSON \(Expecting property name"),
        ("[" * 1_000, r"JSON \(nested too deeply\)"),
        ('{"const": NaN}', r"JSON \(NaN is not a JSON number\), got"),
        ('{"a": 1, "a": 2}', "the name 'a' twice"),
        (r'{"const": "\ud800"}', "half a surrogate pair"),
        ("true", "a JSON object, got bool"),
        ('{"description": "' + "x" * 40_000 + '"}', "at most 32768 bytes, got 40019 bytes"),
        (nested(33), "at most 32 levels of objects and arrays, got more"),
        ({"const": json.loads("[" * 32 + "]" * 32)}, "at most 32 levels"),
        ({"const": [[]] * 3_000}, "at most 3000 objects and arrays altogether, got more"),
        (properties(501), "properties: at most 500 altogether, got 501 or more"),
        ({"$defs": properties(300)["properties"], **properties(201)}, "properties: at most 500 altogether, got 501"),
        ({"enum": [0] * 1_001}, "alternatives: at most 1000 altogether, got 1001"),
        ({"anyOf": [{"allOf": [{}] * 600}, {"oneOf": [{}] * 400}]}, "alternatives: at most 1000 altogether"),
        ({"type": "array", "maxItems": 10_001}, "repetition: at most 10000 altogether, got 10001"),
        ({"type": "array", "items": [{"minItems": 6_000}, {"maxItems": 6_000}]}, "repetition: at most 10000"),
        ({"maxItems": 10**300}, "repetition: at most 10000"),
        ({"maxItems": 10**4_000}, r"JSON \(number out of range"),
        ({"multipleOf": 1_000_003}, "repetition: at most 10000 altogether, got 1000003"),
        ({"multipleOf": 0.00100000003}, "repetition: at most 10000"),
        ({"multipleOf": 1e9}, "repetition: at most 10000"),
        ({"maxLength": 16_777_217}, "maxLength: at most 16777216, got 16777217"),
        ({"minLength": 1e300}, "minLength: at most 16777216"),
        (properties(101, pattern("a")), "patterns: at most 100 altogether, got 101"),
        (pattern("a" * 2_049), "pattern: at most 2048 bytes, got 2049 bytes"),
        (pattern('[^"]{100000}'), "repetition: at most 10000"),
        ({"patternProperties": {"((a{99}){99}){99}": {}}}, "repetition: at most 10000"),
        ({"items": {"not": pattern("a{10001}")}}, "repetition: at most 10000"),
        ({"$ref": "http://169.254.169.254/"}, r"\$ref: to a place in the schema itself, #/…, got http://169"),
        ({"properties": {"a": {"$dynamicRef": "file:///etc/passwd"}}}, r"\$dynamicRef: to a place in the schema"),
    ],
)
def test_too_much_is_refused_with_field_limit_and_value(schema: object, message: str):
    with pytest.raises(InvalidInput, match=f"^response_format.json_schema: .*{message}"):
        check(as_schema(schema), LIMITS)


@pytest.mark.parametrize(
    ("regex", "message"),
    [
        ("", "1 or more characters, none of them NUL, got ''"),
        ("a\0", "1 or more characters, none of them NUL"),
        ("é" * 1_025, "at most 2048 bytes, got 2050 bytes"),
        ("((a{100}){100}){2}", "at most 10000 characters with its repetitions written out, got 20000"),
    ],
)
def test_a_regular_expression_that_is_too_much_is_refused(regex: str, message: str):
    with pytest.raises(InvalidInput, match=f"^response_format.regex: {message}"):
        check(ResponseFormat(regex=regex), LIMITS)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (choice(), "choice: 1 to 1000 texts, got 0"),
        (choice(*map(str, range(1_001))), "choice: 1 to 1000 texts, got 1001"),
        (choice("a", ""), r"choice\[1\]: 1 or more characters, none of them NUL, got ''"),
        (choice("a\0"), r"choice\[0\]: 1 or more characters, none of them NUL"),
        (choice("a", "b", "a"), "choice: each text once, got 3, of which 2 are different"),
        (choice("é" * 16_000, "e" * 1_000), "choice: at most 32768 bytes, got 33000 bytes"),
        (ResponseFormat(grammar=""), "grammar: 1 or more characters, none of them NUL, got ''"),
        (ResponseFormat(grammar="start: \0"), "grammar: 1 or more characters, none of them NUL"),
        (ResponseFormat(grammar="é" * 4_097), "grammar: at most 8192 bytes, got 8194 bytes"),
    ],
)
def test_a_choice_or_a_grammar_that_is_too_much_is_refused(wanted: ResponseFormat, message: str):
    with pytest.raises(InvalidInput, match=f"^response_format.{message}"):
        check(wanted, LIMITS)


_KEYWORDS = ("type", "properties", "items", "enum", "anyOf", "pattern", "maxItems", "minLength", "multipleOf", "$ref")
_WORDS = st.sampled_from((*_KEYWORDS, "$defs", "const", "x", "\ud800"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _WORDS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=30,
)
_CUTS: st.SearchStrategy[Callable[[str], str]] = st.one_of(
    st.just(lambda text: text),
    st.integers(0, 200).map(lambda at: lambda text: text[:at] + text[at + 1 :]),
    st.sampled_from(["[", "]", '"', "\\", "NaN", "\\ud800", "{" * 999]).map(lambda more: lambda text: more + text),
)


def refusal(wanted: ResponseFormat) -> str:
    try:
        check(wanted, LIMITS)
    except InvalidInput as error:
        return error.message
    return ""


@given(_VALUES, _CUTS)
def test_any_schema_is_admitted_or_refused_by_name(value: object, cut: Callable[[str], str]):
    assert refusal(as_schema(cut(json.dumps(value)))).partition(":")[0] in ("", "response_format.json_schema")


@given(st.lists(st.text(max_size=8), max_size=9))
def test_any_choice_is_admitted_or_refused_by_name(values: list[str]):
    assert refusal(choice(*values)).partition(":")[0].partition("[")[0] in ("", "response_format.choice")


@given(st.text(max_size=300))
def test_any_regular_expression_is_admitted_or_refused_by_name(text: str):
    assert refusal(ResponseFormat(regex=text)).partition(":")[0] in ("", "response_format.regex")


@pytest.mark.parametrize(
    ("pattern", "characters"),
    [
        ("", 0),
        ("abc", 3),
        ("a{9}", 9),
        ("a{2,9}b", 10),
        ("a{3,}", 3),
        ("a{,5}", 5),
        (r"\d{4}-\d{2}", 7),
        ("[a-z]{8}", 8),
        ("[]{9}]{2}", 2),
        (r"[\]a]{3}", 3),
        ("(a{9}b){9}", 90),
        ("((a{9}){9}){9}", 729),
        ("(ab)*{9}", 18),
        ("(){9}", 9),
        (r"\({9}", 9),
        ("a{9", 3),
        ("(a{9}", 9),
        ("a)b{2}", 3),
        ("a{9999999999}", MOST_COUNTED),
        ("a{999999999}" * 170, MOST_COUNTED),
        ("[" * 2_000, 1),
    ],
)
def test_repetitions_are_written_out(pattern: str, characters: int):
    assert pattern_size(pattern) == characters


@given(st.text(alphabet=r"ab(){}[]\,019*+?|^$.", max_size=200))
def test_any_text_has_a_size(pattern: str):
    assert 0 <= pattern_size(pattern) <= MOST_COUNTED
