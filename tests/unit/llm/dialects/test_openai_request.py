"""Tools, pictures, thoughts and log-probabilities through OpenAI's API, and its dialects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.llm.engine import Message, Part, Request, Sampling, Tool, ToolCall, ToolChoice
from services.llm.errors import BadEngineSettings
from services.llm.providers.config import OpenAISettings
from services.runtime.errors import InvalidInput
from tests.unit.llm.providers.asking import answer
from tests.unit.llm.providers.simulated_provider import KEY, SimulatedProvider

HELLO = (Message("user", "Hello."),)
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("weather", "Tells it.", json.dumps(SCHEMA), strict=True)
CLOCK = Tool("clock")
PNG, WAV = b"\x89PNG\r\n\x1a\n...", b"RIFF....WAVE..."


async def body(request: Request, **own: Any) -> dict[str, Any]:
    provider = SimulatedProvider()
    await answer(provider, request, **own)
    return provider.body


async def test_tools_and_how_they_are_chosen_are_sent() -> None:
    sent = await body(Request(HELLO, tools=(WEATHER, CLOCK)))
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA, "strict": True},
        },
        {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert "tool_choice" not in sent
    assert "parallel_tool_calls" not in sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice("none"), "none"),
        (ToolChoice("required"), "required"),
        (ToolChoice("named", "clock"), {"type": "function", "function": {"name": "clock"}}),
    ],
)
async def test_a_choice_of_tools_is_sent(choice: ToolChoice, sent: object) -> None:
    said = await body(Request(HELLO, tools=(CLOCK,), tool_choice=choice, parallel_tool_calls=False))
    assert (said["tool_choice"], said["parallel_tool_calls"]) == (sent, False)


async def test_a_conversation_with_calls_results_pictures_and_recordings_is_sent() -> None:
    parts = (Part("text", "What is this?"), Part("image", data=PNG), Part("audio", data=WAV))
    messages = (
        Message("user", parts=parts),
        Message("assistant", tool_calls=(ToolCall("call_1", "weather", '{"city": "Oslo"}'),)),
        Message("tool", "rain", tool_call_id="call_1"),
    )
    assert (await body(Request(messages)))["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgouLi4="}},
                {"type": "input_audio", "input_audio": {"data": "UklGRi4uLi5XQVZFLi4u", "format": "wav"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
        {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
    ]


async def test_the_results_of_calls_come_before_any_other_message() -> None:
    """In Responses a message may stand between a call and its output."""
    first, second = (ToolCall(each, "clock", "{}") for each in ("a", "b"))
    messages = (
        *HELLO,
        Message("assistant", "I look.", tool_calls=(first,)),
        Message("assistant", "And again.", tool_calls=(second,)),
        Message("tool", "noon", tool_call_id="a"),
        Message("tool", "one", tool_call_id="b"),
        Message("assistant", "One."),
        *HELLO,
    )
    _, turn, *rest = (await body(Request(messages)))["messages"]
    assert (turn["content"], [call["id"] for call in turn["tool_calls"]]) == ("I look.\n\nAnd again.", ["a", "b"])
    assert [each["role"] for each in rest] == ["tool", "tool", "assistant", "user"]


async def test_gemini_gets_the_placeholder_for_a_missing_signature_of_a_call() -> None:
    messages = (*HELLO, Message("assistant", tool_calls=(ToolCall("a", "clock", "{}"),)), *HELLO)
    (call,) = (await body(Request(messages), dialect="gemini"))["messages"][1]["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": "skip_thought_signature_validator"}}
    (call,) = (await body(Request(messages)))["messages"][1]["tool_calls"]
    assert call.keys() == {"id", "type", "function"}


@pytest.mark.parametrize(
    ("kind", "limit"), [("image", "PNG, JPEG, WebP, GIF or AVIF"), ("audio", "WAV, FLAC, MP3 or Opus")]
)
async def test_media_of_another_kind_are_refused_by_their_path(kind: Any, limit: str) -> None:
    with pytest.raises(InvalidInput, match=rf"messages\[0\].parts\[0\].{kind}: {limit}, got 4 bytes"):
        await body(Request((Message("user", parts=(Part(kind, data=b"%PDF"),)),)))


async def test_how_tokens_are_drawn_is_sent() -> None:
    sampling = Sampling(frequency_penalty=0.5, presence_penalty=0.0, logit_bias=((7, -100.0),), top_logprobs=0)
    sent = await body(Request(HELLO, sampling))
    assert (sent["frequency_penalty"], sent["presence_penalty"], sent["logit_bias"]) == (0.5, 0.0, {"7": -100.0})
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 0)


async def test_a_server_of_vllm_s_kin_is_sent_its_own_fields_by_its_own_names() -> None:
    own: dict[str, Any] = {"top_k": 5, "min_p": 0.5, "repetition_penalty": 1.5, "min_tokens": 2, "ignore_eos": True}
    sent = await body(Request(HELLO, Sampling(**own, stop_token_ids=(9,))))
    assert {name: sent[name] for name in own} == own
    assert sent["stop_token_ids"] == [9]
    assert not {*own, "stop_token_ids"} & (await body(Request(HELLO))).keys()


async def test_extra_fields_and_headers_are_sent() -> None:
    provider = SimulatedProvider()
    own: dict[str, Any] = {"extra_headers": {"X-Title": "Hedgerow"}, "extra_body": {"provider": {"order": ["a"]}}}
    await answer(provider, dialect="openrouter", **own)
    assert provider.body["provider"] == {"order": ["a"]}
    assert provider.requests[-1].headers["x-title"] == "Hedgerow"


@pytest.mark.parametrize(
    ("own", "url"),
    [
        ({"dialect": "openrouter"}, "https://openrouter.ai/api/v1/chat/completions"),
        ({}, "https://api.openai.com/v1/chat/completions"),
        ({"dialect": "gemini"}, "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"),
        (
            {"dialect": "azure", "base_url": "https://us.test/openai", "api_version": "2024-10-21"},
            "https://us.test/openai/deployments/big/chat/completions?api-version=2024-10-21",
        ),
        ({"dialect": "azure", "base_url": "https://us.test/openai/v1/"}, "https://us.test/openai/v1/chat/completions"),
    ],
)
async def test_each_dialect_has_its_address(own: dict[str, str], url: str) -> None:
    provider = SimulatedProvider()
    await answer(provider, **{"base_url": "", **own})
    asked = provider.requests[-1]
    assert asked.url == url
    header, value = ("api-key", KEY) if own.get("dialect") == "azure" else ("authorization", f"Bearer {KEY}")
    assert asked.headers[header] == value


def test_azure_has_no_address_of_its_own() -> None:
    with pytest.raises(BadEngineSettings, match=r"openai\.base_url: must be set"):
        SimulatedProvider().engine(own={"base_url": "", "dialect": "azure"})


async def test_the_credential_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    provider = SimulatedProvider()
    await provider.engine(own={"api_key": "", "api_key_file": tmp_path / "key"}).warm_up(lambda _: None)
    assert provider.requests[-1].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff"])
def test_a_file_without_a_credential_stops_the_start_and_is_not_quoted(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(BadEngineSettings, match=r"openai.api_key_file: must hold") as caught:
        SimulatedProvider().engine(own={"api_key": "", "api_key_file": tmp_path / "key"})
    assert "lines" not in str(caught.value)


@pytest.mark.parametrize(
    "own",
    [
        {"api_key": KEY, "api_key_file": "/run/key"},
        {"base_url": "https://user:pw@a.test/v1", "api_key_file": "/run/key"},
        {"api_key": "two\nlines"},
        {"extra_headers": {"x-a": "b\r\nc: d"}},
        {"extra_headers": {"x a": "b"}},
    ],
)
def test_settings_that_contradict_or_cannot_be_sent_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenAISettings.model_validate(own)
