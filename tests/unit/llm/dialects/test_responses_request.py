"""Requests to OpenAI's Responses: in the caller's words and translated, and which API a request goes to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from services.llm.engine import Constraint, Feature, Message, Part, Request, Sampling, Tool, ToolCall, ToolChoice
from services.llm.providers.config import OpenAISettings
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported
from tests.recorded_response import RESPONSE, THOUGHT
from tests.unit.llm.dialects.responses import ALONE, BOTH, HELLO, answer, makers, sent, words
from tests.unit.llm.providers.simulated_provider import SimulatedProvider

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}


async def asked(request: Request, **own: Any) -> dict[str, Any]:
    provider = sent(RESPONSE)
    await answer(provider, request, **own)
    body = provider.body
    makers("ResponseInputParam").validate_python(body["input"]) if isinstance(body["input"], list) else None
    return body


@pytest.mark.parametrize(
    ("apis", "api", "path"),
    [
        (BOTH, "chat_completions", "chat/completions"),
        (BOTH, "responses", "responses"),
        (BOTH, "messages", "chat/completions"),
        (ALONE, "chat_completions", "responses"),
        (("responses", "chat_completions"), "messages", "responses"),
        (("chat_completions",), "responses", "chat/completions"),
        (BOTH, None, "chat/completions"),
        (ALONE, None, "responses"),
    ],
)
async def test_a_request_goes_to_its_own_api_where_the_provider_has_it_and_else_to_the_first(
    apis: tuple[str, ...], api: str | None, path: str
) -> None:
    provider = sent(RESPONSE) if path == "responses" else SimulatedProvider()
    own = words(api, messages=[], input="Hello.") if api else None
    await answer(provider, Request(HELLO, original=own), apis)
    assert provider.requests[-1].url == f"http://provider.test/v1/{path}"


@pytest.mark.parametrize(
    ("url", "dialect", "apis"),
    [
        ("", "openai", BOTH),
        ("https://api.openai.com/v1", "openai", BOTH),
        ("https://eu.api.openai.com/v1", "openai", BOTH),
        ("https://api.openai.com.example.org/v1", "openai", BOTH[:1]),
        ("http://127.0.0.1:8000/v1", "openai", BOTH[:1]),
        ("", "openrouter", BOTH[:1]),
        ("https://me.openai.azure.com/openai/v1", "azure", BOTH[:1]),
    ],
)
async def test_a_provider_has_responses_where_it_is_known_to(url: str, dialect: Any, apis: tuple[str, ...]) -> None:
    engine = SimulatedProvider().engine(own={"base_url": url, "dialect": dialect})
    assert engine.describe().apis == frozenset(apis)
    await engine.close()


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValidationError, match="each API once"):
        OpenAISettings(apis=("responses", "responses"))
    with pytest.raises(ValidationError, match="continues no beginning"):
        OpenAISettings(apis=("responses", "chat_completions"), features=(Feature.PREFIX,))


CONVERSATION = (
    Message("system", "Be brief."),
    Message("user", parts=(Part("text", text="Where?"), Part("image", data=b"\x89PNG\r\n\x1a\n..."))),
    Message("assistant", "A moment.", tool_calls=(ToolCall("c1", "weather", '{"city": "Tokyo"}'),)),
    Message("tool", "21", tool_call_id="c1"),
    Message("system", "In Celsius."),
    Message("user", "And now?"),
)


async def test_a_request_is_translated() -> None:
    request = Request(
        CONVERSATION,
        Sampling(temperature=0.5, top_p=0.9, max_tokens=7, top_logprobs=2),
        Constraint("json_schema", json.dumps(SCHEMA)),
        tools=(Tool("weather", "Tells it.", json.dumps(SCHEMA), strict=True), Tool("clock")),
        tool_choice=ToolChoice("named", "weather"),
        parallel_tool_calls=False,
    )
    picture = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgouLi4=", "detail": "auto"}
    none = {"type": "object", "properties": {}}
    assert await asked(request) == {
        "model": "big",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Where?"}, picture]},
            {"role": "assistant", "content": "A moment."},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Tokyo"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "21"},
            {"role": "system", "content": "In Celsius."},
            {"role": "user", "content": "And now?"},
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
        "text": {"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}},
        "max_output_tokens": 7,
        "tools": [
            {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True},
            {"type": "function", "name": "clock", "parameters": none, "strict": False},
        ],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
        "store": False,
        "stream": True,
    }
    assert await asked(Request(HELLO)) == {
        "model": "big",
        "input": [{"role": "user", "content": "Hello."}],
        "store": False,
        "stream": True,
    }


@pytest.mark.parametrize(
    "sampling",
    [Sampling(seed=1), Sampling(stop=("x",)), Sampling(frequency_penalty=0.1), Sampling(logit_bias=((1, 1.0),))],
)
async def test_fields_that_responses_lacks_are_refused_by_name(sampling: Sampling) -> None:
    with pytest.raises(NotSupported, match=r"^sampling\.(seed|stop|frequency_penalty|logit_bias): "):
        await asked(Request(HELLO, sampling))
    with pytest.raises(InvalidInput, match="response_format"):
        await asked(Request(HELLO, constraint=Constraint("regex", "a+")))


async def test_a_beginning_is_not_gone_on_from() -> None:
    for request in (Request(HELLO, prefix="To"), Request(HELLO, prefix="To", original=words(input="Hello."))):
        with pytest.raises(NotSupported, match="prefix"):
            await asked(request)


async def test_fields_changed_by_a_policy_are_translated_and_others_unchanged() -> None:
    tools = (Tool("weather"),)
    own = words(reasoning={"effort": "low"}, previous_response_id="resp_1", include=["reasoning.encrypted_content"])
    request = Request(CONVERSATION, Sampling(seed=1, top_logprobs=0), tools=tools, original=own)
    body = await asked(request)
    assert body["instructions"] == "Be brief."
    assert [item.get("type", "message") for item in body["input"]] == [
        "message", "message", "function_call", "function_call_output", "message", "message",
    ]  # fmt: skip
    assert body["tools"][0]["name"] == "weather"
    assert body["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (body["reasoning"], body["previous_response_id"]) == ({"effort": "low"}, "resp_1")
    assert not {"seed", "store"} & body.keys()


async def test_instructions_of_the_input_stay_there() -> None:
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]
    own = words(input=given, tools=[{"type": "web_search"}])
    messages = (Message("system", "Be brief."), *HELLO)
    assert await asked(Request(messages, original=own)) == {
        "model": "big",
        "input": given,
        "tools": [{"type": "web_search"}],
        "stream": True,
    }


async def test_an_item_that_cannot_be_translated_is_refused_where_it_would_have_to_be() -> None:
    place = {"input[1].content[0]": '{"type":"input_file","file_id":"file_1"}', "input[0].id": '"rs_1"'}
    given = [THOUGHT, {"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]
    assert await asked(Request(HELLO, original=words(untranslated=place, input=given)))
    with pytest.raises(InvalidInput, match=r"^input\[1\]\.content\[0\]: none of its kind where the gateway changes"):
        await asked(Request(HELLO, original=words(untranslated=place)))


async def test_a_cap_holds_for_what_is_asked_in_the_callers_own_words() -> None:
    provider = sent(RESPONSE)
    engine = provider.engine(max_tokens_cap=512, own={"apis": BOTH})
    for own, most in (({"max_output_tokens": 3_000}, 512), ({"max_output_tokens": 7}, 7), ({}, 512)):
        request = Request(HELLO, original=words(input="Hello.", **own))
        assert [chunk async for chunk in engine.generate(request, Deadline.never())]
        assert provider.body["max_output_tokens"] == most
        assert not {"max_tokens", "max_completion_tokens"} & provider.body.keys()
