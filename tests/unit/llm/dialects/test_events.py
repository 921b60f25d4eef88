"""Impossible events of providers: their answers are no internal error, and are not billed by such events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hedgerow.chat.v1 import chat_pb2
from hedgerow.llm.v1 import llm_pb2
from services.llm.answer import Answer
from services.llm.dialects.anthropic_answer import AnthropicAnswer
from services.llm.dialects.openai_answer import OpenAIAnswer
from services.llm.dialects.responses_answer import ResponsesAnswer
from services.llm.engine import FinishReason, Usage
from services.llm.providers.errors import in_stream_status
from services.llm.translate import to_response

SAID = '{"choices":[{"index":0,"delta":{"content":"Hi"}}]}'
ENDED = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'


def response_to(answer: Answer, *events: str) -> llm_pb2.GenerateResponse:
    """The answer to its end, as the service sends it."""
    answer.add(list(events))
    return to_response(answer.finish())


def used(**usage: Any) -> str:
    return json.dumps({"choices": [], "usage": usage})


@pytest.mark.parametrize(
    ("event", "usage"),
    [
        (used(prompt_tokens=-500, completion_tokens=-3), Usage()),
        (used(prompt_tokens=1e400, completion_tokens=3), Usage(completion_tokens=3)),
        (used(prompt_tokens=10**12, completion_tokens=3), Usage(completion_tokens=3)),
        (used(prompt_tokens=5.7, completion_tokens="3"), Usage(5, 3)),
        (used(prompt_tokens=5, prompt_tokens_details={"cached_tokens": 500, "cache_write_tokens": 9}), Usage(5, 0, 5)),
        (
            used(prompt_tokens=5, prompt_tokens_details={"cached_tokens": 3, "cache_write_tokens": 9}),
            Usage(5, 0, 3, 0, 0, 0, 2),
        ),
    ],
)
def test_an_impossible_count_of_tokens_is_ignored(event: str, usage: Usage) -> None:
    answer = OpenAIAnswer()
    answer.add([SAID, ENDED, event])
    finish = answer.finish().finish
    assert finish
    assert (finish.reason, finish.usage) == (FinishReason.STOP, usage)


@pytest.mark.parametrize("tokens", [-5, 10**14, 1e400])
def test_the_same_holds_for_messages_and_responses(tokens: float) -> None:
    end = {"delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 7, "output_tokens": tokens}}
    message = response_to(AnthropicAnswer(), json.dumps({"type": "message_delta", **end}))
    assert (message.finish.usage.prompt_tokens, message.finish.usage.completion_tokens) == (7, 0)
    ended = {"status": "completed", "usage": {"input_tokens": 7, "output_tokens": tokens}}
    response = response_to(ResponsesAnswer(), json.dumps({"type": "response.completed", "response": ended}))
    assert (response.finish.usage.prompt_tokens, response.finish.usage.completion_tokens) == (7, 0)


@pytest.mark.parametrize("answer", [OpenAIAnswer, AnthropicAnswer, ResponsesAnswer])
def test_an_event_that_is_nested_too_deeply_interrupts_the_answer(answer: type[Answer]) -> None:
    deep = '{"type":"message_stop","error":' + "[" * 100_000
    assert response_to(answer(), deep).finish.reason == chat_pb2.FINISH_REASON_INTERRUPTED


def test_half_a_surrogate_pair_is_no_error_and_a_whole_one_is_a_character() -> None:
    pair = '{"choices":[{"index":0,"delta":{"content":"\\ud83d\\ude00 \\ud83d!"}}]}'
    assert to_response(_chunk(OpenAIAnswer(), pair)).text == "\U0001f600 \ufffd!"
    start = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\uDE00"}}'
    assert to_response(_chunk(AnthropicAnswer(), start)).text == "\ufffd"


@pytest.mark.parametrize("field", ["content", "reasoning"])
def test_a_pair_of_surrogates_that_is_cut_between_two_events_is_a_character(field: str) -> None:
    texts = ("a\\ud83d", "", "\\ude00b\\uD83D", "\\uDE01", "\\\\ud83d", "\\ude00", "\\ud83d")
    reading, found = OpenAIAnswer(), ""
    for text in texts:
        if chunk := reading.add([f'{{"choices":[{{"index":0,"delta":{{"{field}":"{text}"}}}}]}}']):
            found += chunk.text + chunk.reasoning
    assert found == "a\U0001f600b\U0001f601\\ud83d\ufffd"


@pytest.mark.parametrize("reason", ["pause_turn", "compaction"])
def test_a_tool_of_the_provider_s_is_neither_a_call_nor_a_broken_answer(reason: str) -> None:
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": '{"query":"rain"}'}
    end = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 2}}
    answer = AnthropicAnswer()
    answer.relays = True
    reply = response_to(
        answer,
        json.dumps({"type": "content_block_start", "index": 0, "content_block": block}),
        json.dumps({"type": "content_block_delta", "index": 0, "delta": delta}),
        json.dumps({"type": "content_block_stop", "index": 0}),
        json.dumps(end),
    )
    assert not reply.tool_calls
    assert reply.finish.reason == chat_pb2.FINISH_REASON_LENGTH, "the caller continues the paused turn"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"type": "overloaded_error"}, 529),
        ({"type": "requests", "code": "rate_limit_exceeded"}, 429),
        ({"type": "insufficient_quota", "code": "insufficient_quota"}, 429),
        ({"type": "server_error", "code": None}, 502),
        ({"type": "x", "code": 503}, 503),
        ({"type": "x", "code": 1302}, 502),
        ({"type": "rate_limit_error", "code": 20012}, 429),
        ({"code": 1.5}, 502),
        ("x", 502),
        (None, 502),
    ],
)
def test_an_error_in_a_stream_has_the_status_that_it_would_have_had_before_it(error: Any, status: int) -> None:
    assert in_stream_status(json.dumps({"error": error})) == status


def _chunk(answer: Answer, event: str) -> Any:
    chunk = answer.add([event])
    assert chunk
    return chunk


@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (ResponsesAnswer(), {"type": "response.output_text.delta", "delta": None}),
        (ResponsesAnswer(), {"type": "response.reasoning_text.delta", "delta": None}),
        (OpenAIAnswer(), {"choices": [{"delta": {"content": [{"type": "text", "text": None}]}}]}),
    ],
)
def test_a_text_that_is_null_is_empty(answer: Answer, event: dict[str, Any]) -> None:
    chunk = answer.add([json.dumps(event)])
    assert chunk
    assert (chunk.text, chunk.reasoning, answer.broken) == ("", "", False)


def test_a_number_in_the_place_of_a_token_s_bytes_makes_no_bytes() -> None:
    answer = OpenAIAnswer()
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": 10**6}]}
    assert answer.add([json.dumps({"choices": [{"delta": {"content": "a"}, "logprobs": logprobs}]})]) is not None
    assert answer.broken


def test_a_call_of_messages_whose_id_and_name_are_numbers_has_them_as_text() -> None:
    block = {"type": "tool_use", "id": 7, "name": 8, "input": {}}
    begun = json.dumps({"type": "content_block_start", "index": 0, "content_block": block})
    chunk = AnthropicAnswer().add([begun])
    assert chunk
    (call,) = to_response(chunk).tool_calls
    assert (call.id, call.name) == ("7", "8")
