"""Requests to Anthropic's Messages API: in the caller's words and translated."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from services.llm.engine import Constraint, Message, Original, Part, Request, Sampling, Tool, ToolCall, ToolChoice
from services.runtime.errors import InvalidInput, NotSupported, ServiceError
from tests.unit.llm.providers.messages_api import HELLO, answer, ended, maker_s, provider, text
from tests.unit.llm.providers.simulated_provider import KEY

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER, CLOCK = Tool("weather", "Tells it.", json.dumps(SCHEMA), strict=True), Tool("clock")


async def body(request: Request, **own: Any) -> dict[str, Any]:
    simulated = provider(*text("Hi."), *ended())
    await answer(simulated, request, **own)
    maker_s("MessageCreateParams").validate_python(simulated.body)
    return simulated.body


def words(**body: Any) -> Original:
    """A request in its caller's own words, as far as no policy has changed them."""
    return Original("messages", json.dumps({"model": "m", "max_tokens": 2_048, **body}).encode())


THINKING = {"type": "enabled", "budget_tokens": 1_024}


async def test_a_conversation_that_a_policy_has_changed_is_not_thought_about_in_the_middle_of_a_turn() -> None:
    call = Message("assistant", tool_calls=(ToolCall("c", "clock", "{}"),))
    turn = (*HELLO, call, Message("tool", "noon", tool_call_id="c"))
    clears = {"edits": [{"type": "clear_thinking_20251015"}]}
    own = words(thinking=THINKING, top_k=7, context_management=clears)
    assert (await body(Request(HELLO, tools=(CLOCK,), original=own)))["thinking"] == THINKING
    sent = await body(Request(turn, tools=(CLOCK,), original=own))
    assert not {"thinking", "context_management"} & sent.keys()
    assert sent["top_k"] == 7
    said = [{"role": "user", "content": "Hello."}]
    unchanged = await body(Request(turn, original=words(thinking=THINKING, messages=said)))
    assert (unchanged["thinking"], unchanged["messages"]) == (THINKING, said)


async def test_an_answer_begins_as_its_caller_has_begun_it_where_a_policy_has_changed_the_conversation() -> None:
    sent = await body(Request(HELLO, prefix="Good", original=words()))
    assert sent["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
        {"role": "assistant", "content": "Good"},
    ]
    said = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Good"}]
    assert (await body(Request(HELLO, prefix="Good", original=words(messages=said))))["messages"] == said


async def test_an_answer_without_a_limit_has_room_in_the_context_that_is_known() -> None:
    assert (await body(Request(HELLO)))["max_tokens"] == 4_096
    assert (await body(Request(HELLO), context_tokens=200_000))["max_tokens"] == 4_096
    assert (await body(Request(HELLO), context_tokens=1_024))["max_tokens"] == 512


async def test_only_fields_that_the_request_sets_are_sent() -> None:
    simulated = provider(*text("Hi."), *ended())
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",))
    await answer(simulated, Request((Message("system", "Be brief."), *HELLO), sampling, cache_salt="ours alone"))
    maker_s("MessageCreateParams").validate_python(simulated.body)
    assert simulated.body == {
        "model": "big",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
        "max_tokens": 7,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["\n"],
    }
    asked = simulated.requests[-1]
    assert asked.url == "http://provider.test/v1/messages"
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "authorization" not in asked.headers


async def test_a_conversation_with_calls_results_and_pictures_is_sent() -> None:
    messages = (
        Message(
            "user", parts=(Part("text", "What is this?"), Part("text", " "), Part("image", data=b"\xff\xd8\xff..."))
        ),
        Message(
            "assistant",
            "Let me see.",
            tool_calls=(ToolCall("functions.weather:0", "weather", '{"city": 1}'), ToolCall("b", "clock", "")),
        ),
        Message("tool", "rain", tool_call_id="functions.weather:0"),
        Message("tool", "", tool_call_id="b"),
        Message("assistant", "\n\n", tool_calls=(ToolCall("c", "clock", ""),)),
        Message("tool", "noon", tool_call_id="c"),
        Message("user", "And?"),
    )
    picture = {"type": "base64", "media_type": "image/jpeg", "data": "/9j/Li4u"}
    assert (await body(Request(messages)))["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "source": picture}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "functions_weather_0", "name": "weather", "input": {"city": 1}},
                {"type": "tool_use", "id": "b", "name": "clock", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "functions_weather_0", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "b"},
            ],
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "clock", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "noon"},
                {"type": "text", "text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (ToolChoice(), True, {"type": "auto"}),
        (ToolChoice(), False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), False, {"type": "none"}),
        (ToolChoice("required"), True, {"type": "any"}),
        (ToolChoice("named", "clock"), True, {"type": "tool", "name": "clock"}),
    ],
)
async def test_tools_and_how_they_are_chosen_are_sent(choice: ToolChoice, parallel: bool, sent: object) -> None:
    untyped = replace(WEATHER, parameters=json.dumps({"properties": SCHEMA["properties"]}))
    said = await body(Request(HELLO, tools=(untyped, CLOCK), tool_choice=choice, parallel_tool_calls=parallel))
    assert said["tools"] == [
        {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA, "strict": True},
        {"name": "clock", "input_schema": {"type": "object", "properties": {}}},
    ]
    assert said["tool_choice"] == sent


async def test_thinking_is_requested_except_where_the_api_refuses_it() -> None:
    thinking = {"type": "adaptive"}
    assert (await body(Request(HELLO), thinking=thinking))["thinking"] == thinking
    result = (
        *HELLO,
        Message("assistant", tool_calls=(ToolCall("a", "clock", "{}"),)),
        Message("tool", "noon", tool_call_id="a"),
    )
    forced = Request(HELLO, tools=(CLOCK,), tool_choice=ToolChoice("required"))
    drawn = [Request(HELLO, Sampling(**each)) for each in ({"temperature": 0.5}, {"top_k": 7}, {"top_p": 0.9})]
    for request in (Request(result), forced, *drawn):
        assert "thinking" not in await body(request, thinking=thinking)


async def test_thinking_leaves_room_for_the_answer() -> None:
    assert (await body(Request(HELLO), thinking=THINKING))["max_tokens"] == 4_096 + 1_024
    assert "thinking" in await body(Request(HELLO, Sampling(max_tokens=1_025)), thinking=THINKING)
    assert "thinking" not in await body(Request(HELLO, Sampling(max_tokens=1_024)), thinking=THINKING)


async def test_a_schema_and_extra_fields_share_an_object() -> None:
    request = Request(HELLO, constraint=Constraint("json_schema", json.dumps(SCHEMA)))
    sent = await body(request, extra_body={"output_config": {"effort": "low"}})
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}


@pytest.mark.parametrize("in_callers_words", [True, False])
async def test_any_json_object_is_asked_for_in_words_after_the_callers_instructions(*, in_callers_words: bool) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    own = Original("chat_completions", json.dumps({"messages": turns}).encode()) if in_callers_words else None
    asked = (Message("system", "Be brief."), *HELLO)
    sent = await body(Request(asked, constraint=Constraint("json_object"), original=own))
    first, added = sent["system"]
    assert (first["text"], "JSON object" in added["text"], "output_config" in sent) == ("Be brief.", True, False)


@pytest.mark.parametrize(
    ("request_", "error", "said"),
    [
        (Request(HELLO, Sampling(seed=1)), NotSupported, "sampling.seed"),
        (Request(HELLO, Sampling(presence_penalty=0.5)), NotSupported, "sampling.presence_penalty"),
        (Request(HELLO, Sampling(temperature=1.5)), InvalidInput, "sampling.temperature: 0 to 1"),
        (Request(HELLO, Sampling(top_k=0)), InvalidInput, "sampling.top_k: 1 or more"),
        (Request(HELLO, constraint=Constraint("regex", "a")), InvalidInput, "response_format"),
        (Request(HELLO, prefix="Hel"), NotSupported, "prefix"),
        (
            Request((*HELLO, Message("assistant", tool_calls=(ToolCall("a", "clock", "{"),)), *HELLO)),
            InvalidInput,
            r"messages\[1\].tool_calls\[0\].arguments",
        ),
    ],
)
async def test_fields_that_the_api_cannot_express_are_refused_by_name_and_not_sent(
    request_: Request, error: type[ServiceError], said: str
) -> None:
    simulated = provider()
    with pytest.raises(error, match=said):
        await answer(simulated, request_)
    assert simulated.requests == []
