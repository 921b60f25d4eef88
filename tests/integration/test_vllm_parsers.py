"""vLLM's own parsers, and the grammars that keep calls to their schemas, over the demo model's tokens; and the names of
its settings."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.llm.config import VllmSettings
from services.llm.engine import Constraint, Message, Request, Tool, ToolCallDelta, ToolChoice
from services.llm.errors import BadEngineSettings
from services.llm.openai_wire import to_tools
from services.llm.vllm_args import declared_fields
from services.llm.vllm_parsers import Parsers
from services.llm.vllm_reading import Reading
from services.runtime.errors import NotSupported

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as vLLM is imported
DEMO = Path(__file__).parents[2] / "models/demo-llm"
HELLO = (Message("user", "Hello."),)
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
WEATHER, CLOCK = Tool("weather", parameters=json.dumps(SCHEMA), strict=True), Tool("clock")
FORECAST = Tool(
    "forecast",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
            "required": ["place", "days"],
        }
    ),
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(DEMO)


@pytest.fixture
def parsers(tokenizer: Any) -> Any:
    def make(**settings: str) -> Parsers:
        model = SimpleNamespace(
            model=str(DEMO), hf_config=SimpleNamespace(model_type="llama"), hf_text_config=SimpleNamespace()
        )
        engine = SimpleNamespace(model_config=model, get_tokenizer=lambda: tokenizer)
        return Parsers(VllmSettings(model=str(DEMO), **settings), engine)

    return make


def read(reading: Reading, tokenizer: Any, text: str) -> tuple[str, str, list[ToolCallDelta]]:
    """Text, thoughts and calls of an answer that arrives token by token."""
    said = []
    tokens = tokenizer.encode(text, add_special_tokens=False)
    for number, token in enumerate(tokens):
        piece = tokenizer.decode([token])
        said.append(reading.read(piece, [token], finished=number == len(tokens) - 1))
    calls = [call for each in said for call in each.tool_calls]
    return "".join(each.text for each in said), "".join(each.reasoning for each in said), calls


def test_the_calls_that_a_model_writes_are_found(parsers: Any, tokenizer: Any) -> None:
    request = Request(HELLO, tools=(WEATHER, CLOCK))
    reading, more = parsers(tool_parser="hermes").reading(request, [1])
    text, _, calls = read(reading, tokenizer, f"I look.{CALL}")
    assert text == "I look."
    assert [(call.index, call.name) for call in calls if call.id] == [(0, "weather")]
    assert json.loads("".join(call.arguments for call in calls)) == {"city": "Oslo"}
    assert more == {"skip_special_tokens": False}
    assert reading.called


def test_the_demo_models_are_shown_tools_and_calls_as_the_parser_reads_calls(tokenizer: Any) -> None:
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}
    plain = "<|system|>Be brief.<|end|><|user|>Hello.<|end|>"
    render = partial(tokenizer.apply_chat_template, tokenize=False)
    assert render([system, user]) == plain
    assert render([system, user], add_generation_prompt=True) == f"{plain}<|assistant|>"
    tools = to_tools((replace(WEATHER, description="Tells it."), CLOCK, FORECAST))
    shown = "Tools:\nweather(city: Oslo): Tells it.\nclock()\nforecast(place, days: integer, unit?: c|f)"
    assert render([user], tools=tools) == f"<|system|>{shown}<|end|><|user|>Hello.<|end|>"
    assert render([system, user], tools=tools) == plain.replace("brief.", f"brief.\n{shown}")
    for arguments in ({"city": "Oslo"}, '{"city": "Oslo"}'):
        call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
        called = {"role": "assistant", "content": None, "tool_calls": [call, call]}
        result = {"role": "tool", "content": "rain"}
        assert render([called, result]) == f"<|assistant|>{CALL}\n{CALL}<|end|><|tool|>rain<|end|>"


def test_thoughts_are_told_from_the_answer(parsers: Any, tokenizer: Any) -> None:
    tokenizer.add_tokens(["<think>", "</think>"])
    reading, _ = parsers(reasoning_parser="deepseek_r1").reading(Request(HELLO), [1])
    text, thoughts, calls = read(reading, tokenizer, "<think>It is late.</think>Good night.")
    assert (text, thoughts, calls) == ("Good night.", "It is late.", [])
    assert reading.reasoning_tokens() > 0


def test_without_a_parser_tools_are_called_only_where_one_must_be(parsers: Any, tokenizer: Any) -> None:
    plain = parsers()
    with pytest.raises(NotSupported, match=r"tool_choice: auto needs the setting vllm\.tool_parser"):
        plain.check(Request(HELLO, tools=(CLOCK,)))
    for choice in (ToolChoice("named", "clock"), ToolChoice("required"), ToolChoice("none")):
        plain.check(Request(HELLO, tools=(CLOCK,), tool_choice=choice))
    reading, _ = plain.reading(Request(HELLO, tools=(CLOCK,), tool_choice=ToolChoice("named", "clock")), [1])
    _, _, calls = read(reading, tokenizer, "{}")
    assert (calls[0].name, "".join(call.arguments for call in calls)) == ("clock", "{}")


def test_what_a_parser_cannot_keep_is_refused_by_name(parsers: Any) -> None:
    with pytest.raises(NotSupported, match=r"tools\[1\]\.strict: not supported with the tool parser pythonic"):
        parsers(tool_parser="pythonic").check(Request(HELLO, tools=(CLOCK, WEATHER)))
    with pytest.raises(NotSupported, match="response_format: not together with tools"):
        parsers(tool_parser="hermes").check(Request(HELLO, tools=(CLOCK,), constraint=Constraint("json_object")))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Good morning.", True),
        (f"I look.{CALL}{CALL}", True),
        ('<tool_call>\n{"name": "clock", "arguments": {"any": 1}}\n</tool_call>', True),
        ('<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>', False),
        ('<tool_call>\n{"name": "tea", "arguments": {}}\n</tool_call>', False),
    ],
)
def test_a_strict_tool_is_called_as_its_schema_says_or_not_at_all(parsers: Any, text: str, kept: bool) -> None:
    from llguidance import LLMatcher, LLTokenizer, grammar_from

    constraint = parsers(tool_parser="hermes").constraint(Request(HELLO, tools=(WEATHER, CLOCK)))
    assert (constraint.kind, constraint.field) == ("grammar", "tools")
    bytes_ = LLTokenizer("byte")
    matcher = LLMatcher(bytes_, grammar_from("grammar", constraint.value), log_level=0)
    tokens = bytes_.tokenize_str(text)
    assert (matcher.validate_tokens(tokens) == len(tokens)) == kept


def test_a_parser_that_there_is_not_stops_the_start(parsers: Any) -> None:
    with pytest.raises(BadEngineSettings, match=r"vllm\.tool_parser, vllm\.reasoning_parser: .*no_such"):
        parsers(tool_parser="no_such")


def test_the_names_in_vllm_s_source_are_those_of_its_settings() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert declared_fields() == {field.name for field in fields(AsyncEngineArgs)}
