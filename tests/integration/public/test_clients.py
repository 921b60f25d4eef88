"""Clients that others wrote, against public models by HTTP."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from launcher.demo import PULLED
from tests.integration.public.test_senses import RECORDINGS, word_error_rate

pytestmark = pytest.mark.timeout(600)
TOOL: Any = {
    "name": "get_weather",
    "description": "Get the current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
QUESTION = [{"role": "user", "content": "What is the weather in Oslo?"}]
SPEECH = "And so, my fellow Americans, ask not what your country can do for you, ask what you can do for your country."


@pytest.fixture
def client(http: str):
    with openai.OpenAI(base_url=f"{http}/v1", api_key="none") as client:
        yield client


def test_openai_streams_an_answer_with_its_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=PULLED[0],
        messages=[{"role": "user", "content": "Name three colours."}],
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.strip()
    assert chunks[-1].usage is not None
    assert 0 < chunks[-1].usage.completion_tokens <= 20


@pytest.mark.parametrize(
    "own",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "low"},
        {"bad_words": ["the", "Oslo", "\u2603"]},
        {"allowed_token_ids": list(range(20, 900))},
        {"skip_special_tokens": False},
        {"spaces_between_special_tokens": False},
        {"include_stop_str_in_output": True, "stop": ["."]},
        {"user": "u", "metadata": {"a": "b"}, "store": False},
    ],
    ids=lambda own: next(iter(own)),
)
def test_fields_of_vllms_own_server_are_taken(client: openai.OpenAI, own: dict[str, Any]) -> None:
    answer = client.chat.completions.create(model=PULLED[0], messages=QUESTION, max_tokens=4, extra_body=own)
    assert answer.usage is not None
    assert 0 < answer.usage.completion_tokens <= 4


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
        ({"bad_words": ["x" * 65]}, "bad_words.0"),
        ({"allowed_token_ids": [10**6]}, "allowed_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"field_of_tomorrow": 1}, "field_of_tomorrow"),
    ],
)
def test_fields_that_vllm_does_not_take_are_refused_by_name(
    client: openai.OpenAI, own: dict[str, Any], place: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=place):
        client.chat.completions.create(model=PULLED[1], messages=QUESTION, max_tokens=12, extra_body=own)
    answer = client.chat.completions.create(model=PULLED[1], messages=QUESTION, max_tokens=2)
    assert answer.usage is not None, "and the engine goes on"


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"tool_choice": "required"}])
def test_openai_offers_tools_in_every_way(client: openai.OpenAI, choice: dict[str, str]) -> None:
    answer = client.chat.completions.create(
        model=PULLED[1],
        messages=QUESTION,
        tools=[{"type": "function", "function": TOOL}],
        parallel_tool_calls=False,
        max_tokens=64,
        **choice,
    )
    calls = answer.choices[0].message.tool_calls or []
    assert calls or choice.get("tool_choice") != "required"
    assert not calls or choice.get("tool_choice") != "none"
    for call in calls:
        assert call.function.name == "get_weather"
        assert isinstance(json.loads(call.function.arguments)["city"], str)


def test_openai_reads_what_a_tool_said(client: openai.OpenAI) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    turns = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Snow, -3 degrees."},
    ]
    answer = client.chat.completions.create(
        model=PULLED[1], messages=turns, tools=[{"type": "function", "function": TOOL}], max_tokens=40
    )
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_openai_responses_answer(client: openai.OpenAI) -> None:
    answer = client.responses.create(model=PULLED[1], input="Name three colours.", max_output_tokens=20)
    assert answer.output_text.strip()


def test_anthropic_streams_an_answer(http: str) -> None:
    import anthropic  # with 3,000 modules: only the worker that needs them has them

    with (
        anthropic.Anthropic(base_url=http, api_key="none") as client,
        client.messages.stream(
            model=PULLED[1], max_tokens=24, messages=[{"role": "user", "content": "Name three animals."}]
        ) as stream,
    ):
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text.strip()
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 24


def test_anthropic_offers_tools(http: str) -> None:
    import anthropic

    one = {"type": "any", "disable_parallel_tool_use": True}
    tool = {"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["parameters"]}
    with anthropic.Anthropic(base_url=http, api_key="none") as client:
        message = client.messages.create(
            model=PULLED[1], max_tokens=64, messages=QUESTION, tools=[tool], tool_choice=one
        )
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert (call.name, set(call.input)) == ("get_weather", {"city"})


def test_openai_transcribes_a_recording_and_names_its_language(client: openai.OpenAI) -> None:
    heard = client.audio.transcriptions.create(
        model=PULLED[2], file=RECORDINGS / "jfk.flac", response_format="verbose_json"
    )
    assert word_error_rate([SPEECH], [heard.text]) <= 0.1
    assert heard.language in ("en", "english")
