"""Providers that ignore `stream: true` and answer in one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter

from services.llm.engine import Chunk, FinishReason, Message, Original, Request, ToolCallDelta
from services.llm.errors import AnswerTooLarge, EngineBusy, EngineDown, RequestRefused
from services.llm.providers.engine import ProviderEngine
from services.runtime.deadline import Deadline
from services.runtime.errors import ServiceError
from tests.answering_provider import FORM, TEXT, TOOL, answered
from tests.unit.llm.providers import messages_api
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, end_of, text_of

PLAIN = {"messages": [{"role": "user", "content": "?"}], "input": "?"}
ASKS_TOOL = {**PLAIN, "tools": [{"name": TOOL}]}
PATHS = {"chat_completions": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
THINKS = {"thinking": {"type": "enabled"}}
Json = Mapping[str, Any]


def _engine(api: str, provider: SimulatedProvider) -> ProviderEngine:
    return messages_api.engine(provider) if api == "messages" else provider.engine(own={"apis": (api,)})


async def _answer(api: str, body: object, *, in_own_words: bool = False) -> list[Chunk]:
    said = body if isinstance(body, str) else json.dumps(body)
    provider = SimulatedProvider((said[:40], said[40:]), headers={"content-type": "application/json; charset=utf-8"})
    original = Original(api, json.dumps(PLAIN).encode()) if in_own_words else None
    request = Request((Message("user", "?"),), original=original)
    return [chunk async for chunk in _engine(api, provider).generate(request, Deadline.never())]


async def _refusal(api: str, body: object) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        await _answer(api, body)
    return caught.value


def _said(api: str, body: Json) -> Json:
    whole = answered(PATHS[api], body)
    assert isinstance(whole, Mapping)
    return whole


@pytest.mark.parametrize("api", PATHS)
async def test_an_answer_in_one_piece_has_its_text_its_finish_and_its_usage(api: str) -> None:
    chunks = await _answer(api, _said(api, PLAIN))
    assert text_of(chunks) == TEXT
    end = end_of(chunks)
    assert end.reason is FinishReason.STOP
    assert (end.usage.prompt_tokens, end.usage.completion_tokens) == {
        "chat_completions": (80, 30),
        "responses": (9, 12),
        "messages": (2_060, 89),
    }[api]
    assert sum(chunk.tokens for chunk in chunks) == end.usage.completion_tokens


@pytest.mark.parametrize("api", PATHS)
async def test_calls_of_tools_in_one_piece(api: str) -> None:
    chunks = await _answer(api, _said(api, ASKS_TOOL))
    calls = [call for chunk in chunks for call in chunk.tool_calls]
    assert ({call.index for call in calls}, calls[0].name, bool(calls[0].id)) == ({calls[0].index}, TOOL, True)
    assert json.loads("".join(call.arguments for call in calls)) == json.loads(FORM)
    assert end_of(chunks).reason is FinishReason.TOOL_CALLS


async def test_several_calls_keep_their_order() -> None:
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("a", "b")]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    chunks = await _answer("chat_completions", {"choices": [{"message": message, "finish_reason": None}]})
    assert [call for chunk in chunks for call in chunk.tool_calls] == [
        ToolCallDelta(0, "a", "weather", "{}"),
        ToolCallDelta(1, "b", "weather", "{}"),
    ]


async def test_thoughts_and_log_probabilities_in_one_piece() -> None:
    chunks = await _answer("messages", _said("messages", {**PLAIN, **THINKS}))
    assert "".join(chunk.reasoning for chunk in chunks) == "Tokyo, so\n"
    assert "".join(chunk.reasoning for chunk in await _answer("responses", _said("responses", PLAIN)))
    logprobs = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}]}
    choice = {"index": 0, "message": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": "length"}
    chunks = await _answer("chat_completions", {"choices": [choice]})
    assert [each.token for chunk in chunks for each in chunk.logprobs] == ["Hi"]
    assert end_of(chunks).reason is FinishReason.LENGTH


@pytest.mark.parametrize("body", [PLAIN, ASKS_TOOL, {**PLAIN, **THINKS}], ids=["text", "tool", "thoughts"])
@pytest.mark.parametrize("api", PATHS)
async def test_a_caller_of_the_same_api_gets_valid_events_of_that_api(api: str, body: Json) -> None:
    chunks = await _answer(api, _said(api, body), in_own_words=True)
    events = [json.loads(event) for chunk in chunks for event in chunk.relayed]
    assert events
    check = _makers_event(api)
    for event in events:
        check(event)


async def test_citations_and_blocks_of_other_kinds_in_one_piece() -> None:
    cited = {"type": "text", "text": "Tokyo.", "citations": [{"type": "page_location", "cited_text": "Tokyo"}]}
    searched = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "?"}}
    body = {"type": "message", "content": [searched, cited], "stop_reason": "pause_turn", "usage": {"output_tokens": 3}}
    chunks = await _answer("messages", body, in_own_words=True)
    events = [json.loads(event) for chunk in chunks for event in chunk.relayed]
    assert text_of(chunks) == "Tokyo."
    assert [event["content_block"] for event in events if event["type"] == "content_block_start"] == [
        searched,
        {**cited, "text": "", "citations": []},
    ]
    assert {"type": "citations_delta", "citation": cited["citations"][0]} in [event.get("delta") for event in events]
    assert end_of(chunks).reason is FinishReason.LENGTH


def _makers_event(api: str) -> Callable[[Any], Any]:
    """Validates an event; the import takes two seconds."""
    if api == "messages":
        from anthropic.types import RawMessageStreamEvent

        return TypeAdapter[Any](RawMessageStreamEvent).validate_python
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent

    kind: Any = ChatCompletionChunk if api == "chat_completions" else ResponseStreamEvent
    return TypeAdapter[Any](kind).validate_python


@pytest.mark.parametrize(
    ("api", "body", "error"),
    [
        ("chat_completions", {"error": {"message": "bad", "type": "invalid_request_error"}}, RequestRefused),
        ("chat_completions", {"error": {"message": "slow", "code": 429}}, EngineBusy),
        ("messages", {"type": "error", "error": {"type": "overloaded_error", "message": "full"}}, EngineBusy),
        ("responses", {"error": {"message": "slow", "type": "rate_limit_error", "code": None}}, EngineBusy),
        ("responses", {"status": "failed", "output": [], "error": {"code": "server_error"}}, EngineDown),
    ],
)
async def test_an_error_with_status_200_stays_an_error(api: str, body: Json, error: type[ServiceError]) -> None:
    assert type(await _refusal(api, body)) is error


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}", '{"choices": []}', '{"type": "ping"}', '{"output": []}'])
async def test_another_body_is_no_answer(api: str, body: str) -> None:
    refusal = await _refusal(api, body)
    assert isinstance(refusal, EngineDown)
    assert refusal.message.endswith("neither an event stream nor an answer in one piece")


async def test_an_answer_in_one_piece_has_the_limit_of_an_event() -> None:
    message = {"role": "assistant", "content": "x" * 3_145_728}
    refusal = await _refusal("chat_completions", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert isinstance(refusal, AnswerTooLarge)
    assert refusal.message.startswith("messages: an answer of at most 3145728 bytes")
