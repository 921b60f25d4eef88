"""Tools that are described in text, and calls between tags."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer, grammar_from

from services.llm.engine import Message, Part, Request, Tool, ToolCall
from services.llm.vllm import text_tools
from services.llm.vllm.reading import AnswerPiece, PlainReading, TaggedReading

SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
WEATHER, CLOCK = Tool("weather", "Tells it.", json.dumps(SCHEMA)), Tool("clock")
HELLO = Message("user", "Hello.")
CALLED = Message("assistant", "I look.", tool_calls=(ToolCall("a", "weather", '{"city": "Oslo"}'),))
RESULT = Message("tool", "rain", tool_call_id="a")
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'


def allowed(text: str, *, parallel: bool = True) -> bool:
    """Whether a whole answer may be this."""
    request = Request((HELLO,), tools=(WEATHER, CLOCK), parallel_tool_calls=parallel)
    bytes_ = LLTokenizer("byte")
    grammar = grammar_from("grammar", text_tools.constraint(request).value)
    matcher = LLMatcher(bytes_, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.consume_tokens(bytes_.tokenize_str(text)) and bool(matcher.is_accepting())


@pytest.mark.parametrize(
    "text", ["Good morning.", "a < b, <tool>", f"I look.\n{CALL}", CALL, TIME, f"{CALL}\n{TIME}", "\n".join([CALL] * 8)]
)
def test_an_answer_is_text_or_text_and_calls(text: str) -> None:
    assert allowed(text)


@pytest.mark.parametrize(
    "text",
    [
        CALL.replace("Oslo", "Paris"),
        CALL.replace("weather", "tea"),
        TIME.replace("{}", '{"any": 1}'),
        CALL.removesuffix("\n</tool_call>"),
        f"{CALL} and text",
        "\n".join([CALL] * 9),
    ],
)
def test_a_call_is_of_a_tool_by_its_schema_and_nothing_but_calls_is_behind_one(text: str) -> None:
    assert not allowed(text)


def test_a_single_call_is_all_there_may_be_where_several_may_not() -> None:
    assert allowed(f"I look. {CALL}", parallel=False)
    assert not allowed(f"{CALL}\n{CALL}", parallel=False)


def test_tools_are_described_behind_the_system_message_or_in_one_of_their_own() -> None:
    system = Message("system", "Be brief.")
    (converted, user) = text_tools.as_text((system, HELLO), (WEATHER,), takes_system=True)
    assert converted.content.startswith("Be brief.\n\n# Tools\n")
    assert '"description": "Tells it.", "parameters": {"type": "object"' in converted.content
    assert user == HELLO
    (alone, user) = text_tools.as_text((HELLO,), (WEATHER,), takes_system=True)
    assert (alone.role, user) == ("system", HELLO)


def test_a_template_without_system_messages_has_them_in_the_first_turn() -> None:
    (converted,) = text_tools.as_text((HELLO,), (WEATHER,), takes_system=False)
    assert converted.role == "user"
    assert converted.content.startswith("# Tools\n")
    assert converted.content.endswith("\n\nHello.")
    picture = Part("image", data=b"png")
    (converted,) = text_tools.as_text((Message("user", parts=(picture,)),), (WEATHER,), takes_system=False)
    assert converted.parts[0].text.startswith("# Tools\n")
    assert converted.parts[1:] == (picture,)


def test_calls_and_their_results_are_texts_of_turns_that_every_template_has() -> None:
    results = (RESULT, Message("tool", "12:00", tool_call_id="b"))
    converted = text_tools.as_text((HELLO, CALLED, *results, Message("user", "And?")), (), takes_system=True)
    assert converted == (
        HELLO,
        Message("assistant", f"I look.\n{CALL}"),
        Message("user", "<tool_response>\nrain\n</tool_response>\n<tool_response>\n12:00\n</tool_response>\nAnd?"),
    )


def read(text: str, cuts: list[int]) -> tuple[str, list[tuple[str, str]]]:
    """Text and calls of an answer that arrives in pieces."""
    reading = TaggedReading(PlainReading())
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    pieces = [text[start:end] for start, end in pairwise(places)]
    said = [reading.read(piece, [1], finished=number == len(pieces) - 1) for number, piece in enumerate(pieces)]
    calls: list[tuple[str, str]] = []
    for delta in (delta for each in said for delta in each.tool_calls):
        if delta.id:
            calls.append((delta.name, ""))
        calls[delta.index] = (calls[delta.index][0], calls[delta.index][1] + delta.arguments)
    assert reading.called == bool(calls)
    return "".join(each.text for each in said), calls


@given(st.lists(st.integers(0, 300)))
def test_text_and_calls_are_separated_however_they_arrive(cuts: list[int]) -> None:
    text, calls = read(f"I look <here>.\n{CALL}\n{TIME}", cuts)
    assert text == "I look <here>.\n"
    assert calls == [("weather", '{"city": "Oslo"}'), ("clock", "{}")]


@given(st.lists(st.integers(0, 300)))
def test_the_beginning_of_a_tag_alone_is_text(cuts: list[int]) -> None:
    assert read("a <tool_ca", cuts) == ("a <tool_ca", [])


def test_text_that_may_become_a_tag_is_held_back_until_it_is_none() -> None:
    reading = TaggedReading(PlainReading())
    assert reading.read("so <tool", [1], finished=False) == AnswerPiece("so ")
    assert reading.read("s>", [1], finished=False) == AnswerPiece("<tools>")
