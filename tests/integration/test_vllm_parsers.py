"""vLLM's own parsers, and the grammars that keep calls to their schemas, over the demo model's tokens; and the names of
its settings."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from services.llm.config import VllmSettings
from services.llm.dialects.openai_request import to_tools
from services.llm.engine import Constraint, Message, Request, Tool, ToolCallDelta, ToolChoice
from services.llm.errors import BadEngineSettings
from services.llm.vllm import parser_table
from services.llm.vllm.parsers import Parsers, found
from services.llm.vllm.reading import VllmReading
from services.runtime.errors import NotSupported
from tests.models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as vLLM is imported
DEMO = MODELS / "demo-llm"
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
            model=str(DEMO),
            hf_config=SimpleNamespace(model_type="llama"),
            hf_text_config=SimpleNamespace(),
            tokenizer_revision=None,
            code_revision=None,
            tokenizer=str(DEMO),
            trust_remote_code=False,
        )
        engine = SimpleNamespace(model_config=model, get_tokenizer=lambda: tokenizer)
        return Parsers(found(VllmSettings(model=str(DEMO), **settings), model, tokenizer), engine)

    return make


def read(reading: VllmReading, tokenizer: Any, text: str) -> tuple[str, str, list[ToolCallDelta]]:
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


def test_thoughts_are_separated_from_the_answer(parsers: Any, tokenizer: Any) -> None:
    tokenizer.add_tokens(["<think>", "</think>"])
    reading, _ = parsers(reasoning_parser="deepseek_r1").reading(Request(HELLO), [1])
    text, thoughts, calls = read(reading, tokenizer, "<think>It is late.</think>Good night.")
    assert (text, thoughts, calls) == ("Good night.", "It is late.", [])
    assert reading.reasoning_tokens() > 0


def test_the_parser_is_found_from_the_template(parsers: Any, tokenizer: Any) -> None:
    request = Request(HELLO, tools=(CLOCK, replace(WEATHER, strict=False)))
    reading, _ = parsers().reading(request, [1])
    assert parsers().constraint(request) is None
    assert parsers().shown(HELLO, request.tools, request.tool_choice) == (HELLO, request.tools)
    text, _, calls = read(reading, tokenizer, f"I look.{CALL}")
    assert (text, calls[0].name) == ("I look.", "weather")


def test_without_a_parser_tools_are_described_in_a_text_and_calls_follow_their_schemas(
    parsers: Any, tokenizer: Any
) -> None:
    plain = parsers(tool_parser="")
    request = Request(HELLO, tools=(WEATHER, CLOCK))
    (system, user), tools = plain.shown(HELLO, request.tools, request.tool_choice)
    assert (system.role, user, tools) == ("system", HELLO[0], ())
    assert '"name": "weather"' in system.content
    assert plain.constraint(request).kind == "grammar"
    reading, more = plain.reading(request, [1])
    text, _, calls = read(reading, tokenizer, f"I look.{CALL}")
    assert (text, more) == ("I look.", {})
    assert (calls[0].name, json.loads("".join(call.arguments for call in calls))) == ("weather", {"city": "Oslo"})
    assert reading.called


def test_without_a_parser_a_call_that_must_be_made_is_all_of_the_answer(parsers: Any, tokenizer: Any) -> None:
    named = Request(HELLO, tools=(CLOCK,), tool_choice=ToolChoice("named", "clock"))
    reading, _ = parsers(tool_parser="").reading(named, [1])
    _, _, calls = read(reading, tokenizer, "{}")
    assert (calls[0].name, "".join(call.arguments for call in calls)) == ("clock", "{}")


def test_strict_tools_go_our_own_way_where_no_grammar_follows_the_parser_s(parsers: Any) -> None:
    pythonic, strict, loose = parsers(tool_parser="pythonic"), (CLOCK, WEATHER), (CLOCK,)
    assert pythonic.constraint(Request(HELLO, tools=strict)).field == "tools"
    assert pythonic.shown(HELLO, strict, ToolChoice())[1] == ()
    assert pythonic.constraint(Request(HELLO, tools=loose)) is None
    assert pythonic.shown(HELLO, loose, ToolChoice()) == (HELLO, loose)


def test_a_format_beside_tools_is_refused_by_name(parsers: Any) -> None:
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
    with pytest.raises(BadEngineSettings, match=r"vllm\.tool_parser: .*no_such"):
        parsers(tool_parser="no_such")


def test_vllm_knows_every_parser_of_the_table() -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    thoughts = (*parser_table.THOUGHTS, parser_table.OPENS_THOUGHTS)
    assert {entry.parser for entry in parser_table.TOOLS} <= set(ToolParserManager.list_registered())
    assert {entry.parser for entry in thoughts} <= set(ReasoningParserManager.list_registered())
