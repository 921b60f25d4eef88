"""Other shapes than the SDK's own: taken where they are plain, else refused by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from hedgerow import InvalidArgument, Message, Tool, ToolCall
from hedgerow._chat_input import refuse_unknown
from hedgerow._outgoing import METHODS, Caller
from hedgerow._peer import Peer
from hedgerow._request import generate_request

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURNS: list[tuple[Any, Message]] = [
    ({"role": "user", "content": "Hi."}, Message("user", "Hi.")),
    (
        {"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i."}]},
        Message("user", "Hi."),
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        Message("assistant", "", [ToolCall("1", "f", "{}")]),
    ),
    ({"role": "assistant", "content": "A", "refusal": None, "annotations": []}, Message("assistant", "A")),
    ({"role": "tool", "tool_call_id": "1", "content": "3"}, Message("tool", "3", tool_call_id="1")),
]


@pytest.mark.parametrize(("turn", "same"), TURNS)
def test_a_turn_may_be_a_mapping_as_chat_apis_have_it(turn: Any, same: Message) -> None:
    assert generate_request([turn]) == generate_request([same])


def test_a_single_turn_needs_no_list() -> None:
    assert generate_request({"role": "user", "content": "Hi."}) == generate_request("Hi.")  # type: ignore[arg-type]
    assert generate_request(Message("user", "Hi.")) == generate_request("Hi.")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        (["Hi."], r"messages\[0\]: a Message, or a mapping with role and content, got 'Hi.'"),
        ([7], r"messages\[0\]: a Message, or a mapping with role and content, got int"),
        (7, "messages: a text or a sequence of turns, got 7"),
        ([{"content": "Hi."}], r"messages\[0\].role: system, user, assistant or tool, got none"),
        (
            [{"role": "user", "contents": "Hi."}],
            r"messages\[0\]: some of role, .*, got contents; did you mean content\?",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            r"messages\[0\].content\[0\]: .*, got image_url; pict",
        ),
        ([{"role": "assistant", "tool_calls": [7]}], r"messages\[0\].tool_calls\[0\]: a ToolCall, .*, got int"),
        ([{"role": "assistant", "tool_calls": 7}], r"messages\[0\].tool_calls: a sequence of calls, got int"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": None}]}],
            r"messages\[0\].tool_calls\[0\].function: a mapping with name and arguments, got NoneType",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], r"messages\[0\].content\[0\].text: a text, got NoneType"),
        ([{"role": ["user"]}], r"messages\[0\].role: system, user, assistant or tool, got \['user'\]"),
    ],
)
def test_an_invalid_turn_is_refused_by_its_path(turns: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{problem}"):
        generate_request(turns)


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "f", "description": "d", "parameters": {"type": "object"}},
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
        {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": None},
    ],
)
def test_a_tool_may_be_a_mapping_as_chat_apis_have_it(tool: Any) -> None:
    assert generate_request("?", tools=[tool]) == generate_request("?", tools=[Tool("f", "d", {"type": "object"})])


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (7, r"tools\[0\]: a Tool, a function or a mapping"),
        ({"description": "d"}, r"tools\[0\].name: a text, got None"),
        ({"name": "f", "parameter": {}}, r"tools\[0\]: some of name, .*, got parameter; did you mean parameters\?"),
    ],
)
def test_an_invalid_tool_is_refused_by_its_path(tool: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{problem}"):
        generate_request("?", tools=[tool])


def test_a_whole_float_is_a_whole_number_and_milliseconds_are_rounded() -> None:
    given: Any = {"budget_ms": 0.3333 * 1000, "max_tokens": 16.0, "seed": 7.0, "temperature": 1}
    request = generate_request("?", **given)
    assert (request.budget_ms, request.sampling.max_tokens, request.sampling.seed) == (333, 16, 7)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_tokens": 1.5}, "max_tokens: a whole number, got 1.5"),
        ({"max_tokens": "ten"}, "max_tokens: a whole number, got 'ten'"),
        ({"temperature": "0.5"}, "temperature: a number, got '0.5'"),
        ({"model": 7}, "model: a text, got 7"),
        ({"repair": "yes"}, "repair: true or false, got 'yes'"),
        ({"stop": [7]}, "stop: "),
        ({"budget_ms": float("inf")}, "budget_ms: "),
        ({"logit_bias": [7]}, "logit_bias: a mapping, got list"),
        ({"guard": "email"}, "guard: a mapping, got str"),
        ({"tool_choice": ["auto"]}, r"tool_choice.name: a text, got \['auto'\]"),
        ({"tools": [{"name": "find", "parameters": {7}}]}, r"tools\[0\].parameters: a JSON Schema "),
        ({"images": 7}, r"images\[0\]: bytes, or the path of a file, got int"),
        ({"audio": 7}, "audio: bytes, or the path of a file, got int"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(given: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{problem}"):
        generate_request("?", **given)


@dataclass
class City:
    name: str


def test_a_schema_may_be_that_of_a_class() -> None:
    text = generate_request("?", json_schema=City).response_format.json_schema
    assert json.loads(text)["properties"] == {"name": {"type": "string"}}


@pytest.mark.parametrize("given", [object, 7, {"type": object}])
def test_an_invalid_schema_is_refused(given: Any) -> None:
    with pytest.raises(
        InvalidArgument, match=r"^json_schema: a JSON Schema as text or mapping, or a class that has one"
    ):
        generate_request("?", json_schema=given)


@pytest.mark.parametrize("given", ["Hi.", {"messages": "Hi."}])
def test_a_single_question_is_no_batch(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^requests: a sequence of questions, got one"):
        Caller(Peer("localhost:1"), None).batch(given, {})


def test_an_option_that_does_not_exist_is_refused_with_the_method_and_the_nearest_one() -> None:
    caller, given = Caller(Peer("localhost:1"), None), {"messages": "?", "budget": 300}
    with pytest.raises(InvalidArgument, match=r"^ask\(\): no option budget; did you mean budget_ms\?$") as caught:
        refuse_unknown("ask()", given)
    assert caught.value.metadata == {"field": "budget", "nearest": "budget_ms"}
    with pytest.raises(InvalidArgument, match=r"^stream\(\): no option on_token; ask\(\) has it$"):
        refuse_unknown("stream()", ["on_token"], METHODS)
    with pytest.raises(InvalidArgument, match=r"^requests\[1\]: no option budget; did you mean budget_ms\?$"):
        caller.batch(["?", given], {})  # type: ignore[list-item]
    with pytest.raises(InvalidArgument, match=r"^stream\(\): no option xyz; docs/sdk.md lists them$"):
        caller.generate({"messages": "?", "xyz": 1})  # type: ignore[typeddict-unknown-key]
