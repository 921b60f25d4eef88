"""Answers of OpenAI's Responses: events, and what they become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Finish, FinishReason, Request, ToolCallDelta, Usage
from services.llm.errors import ContentRefused, EngineBusy, EngineDown, RequestRefused
from services.runtime.errors import InvalidInput, ServiceError
from tests.recorded_response import (
    CALL,
    RESPONSE,
    Event,
    begun,
    called,
    ended,
    message,
    numbered,
    response,
    said,
    thought,
)
from tests.unit.llm.dialects.responses import BOTH, HELLO, answer, makers, sent, words
from tests.unit.llm.providers.simulated_provider import end_of, text_of


def test_the_events_of_these_tests_are_those_of_the_makers_client() -> None:
    for event in [*RESPONSE, *numbered([*begun(), *called(), ended([CALL])])]:
        makers("ResponseStreamEvent").validate_python(event, strict=False)


async def test_an_answer_has_thoughts_text_and_the_providers_usage() -> None:
    chunks = await answer(sent(RESPONSE), Request(HELLO))
    assert "".join(chunk.reasoning for chunk in chunks) == "Japan, so Tokyo."
    assert text_of(chunks) == "Tokyo."
    assert end_of(chunks) == Finish(FinishReason.STOP, Usage(9, 12, 4, reasoning_tokens=10))
    assert sum(chunk.tokens for chunk in chunks) == 12
    assert not any(chunk.relayed for chunk in chunks)


async def test_paragraphs_of_thoughts_stay_apart() -> None:
    begin, *paragraph, end = thought()
    chunks = await answer(sent(numbered([*begun(), begin, *paragraph, *paragraph, end, ended([])])), Request(HELLO))
    assert "".join(chunk.reasoning for chunk in chunks) == "Japan, so Tokyo.\n\nJapan, so Tokyo."


async def test_messages_of_one_answer_stay_apart() -> None:
    events = [*begun(), *said("I look."), *thought(1), *said("It ", "rains.", index=2), ended([])]
    assert text_of(await answer(sent(numbered(events)), Request(HELLO))) == "I look.\n\nIt rains."


async def test_calls_arrive_piece_by_piece_and_end_the_answer() -> None:
    chunks = await answer(sent(numbered([*begun(), *called(), ended([CALL])])), Request(HELLO))
    first, *more = [each for chunk in chunks for each in chunk.tool_calls]
    assert first == ToolCallDelta(0, "call_1", "weather", "")
    assert "".join(each.arguments for each in more) == CALL["arguments"]
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        ({"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"}, "SELECT 1"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "{}"),
        ({"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "click"}}, ""),
    ],
)
async def test_tools_of_the_caller_are_calls_also_in_one_piece(item: dict[str, Any], arguments: str) -> None:
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    events = [*begun(), added, {**added, "type": "response.output_item.done"}, ended([item])]
    chunks = await answer(sent(events), Request(HELLO))
    made = [each for chunk in chunks for each in chunk.tool_calls]
    assert (made[0].id, made[0].name) == ("c", item.get("name", item["type"]))
    assert "".join(each.arguments for each in made) == arguments
    assert end_of(chunks).reason == FinishReason.TOOL_CALLS


async def test_a_providers_own_tool_is_no_call() -> None:
    item = {"id": "ws_1", "type": "web_search_call", "status": "in_progress"}
    events: list[Event] = [
        *begun(),
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        *said("Tokyo.", index=1),
        ended([item, message("Tokyo.")]),
    ]
    own = words(input="?")
    chunks = await answer(sent(events), Request(HELLO, original=own))
    assert not any(chunk.tool_calls for chunk in chunks)
    assert end_of(chunks).reason == FinishReason.STOP
    assert [json.loads(each) for chunk in chunks for each in chunk.relayed] == events


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("max_output_tokens", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("a_reason_of_tomorrow", FinishReason.LENGTH),
    ],
)
async def test_an_answer_that_is_incomplete_says_why(why: str, reason: FinishReason) -> None:
    last = ended([message("Tok", status="incomplete")], "incomplete", incomplete_details={"reason": why})
    assert end_of(await answer(sent([*begun(), *said("Tok"), last]), Request(HELLO))).reason == reason


async def test_a_refusal_is_text_that_a_filter_has_let_through() -> None:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = [*begun(), {"type": "response.refusal.delta", **at, "delta": "I cannot."}, ended([])]
    chunks = await answer(sent(events), Request(HELLO))
    assert text_of(chunks) == "I cannot."
    assert end_of(chunks).reason == FinishReason.CONTENT_FILTER


async def test_logprobs_come_with_their_text() -> None:
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    top = {"token": "a", "logprob": -0.5, "bytes": [97]}
    delta = {"type": "response.output_text.delta", **at, "delta": "a", "logprobs": [{**top, "top_logprobs": [top]}]}
    chunks = await answer(sent([*begun(), delta, ended([])]), Request(HELLO))
    (logprob,) = [each for chunk in chunks for each in chunk.logprobs]
    assert (logprob.token, logprob.logprob, logprob.top[0].bytes) == ("a", -0.5, b"a")


async def test_the_events_of_an_answer_are_relayed_to_the_last() -> None:
    provider = sent(RESPONSE)
    own = words(input="Hello.", include=["reasoning.encrypted_content"], stream_options={"include_obfuscation": False})
    chunks = await answer(provider, Request(HELLO, original=own), BOTH)
    assert [json.loads(each) for chunk in chunks for each in chunk.relayed] == list(RESPONSE)
    assert provider.requests[-1].url == "http://provider.test/v1/responses"
    assert provider.body == {
        "model": "big",
        "input": "Hello.",
        "include": ["reasoning.encrypted_content"],
        "stream_options": {"include_obfuscation": False},
        "stream": True,
    }


FAILURES: dict[str, tuple[dict[str, Any], type[ServiceError]]] = {
    "rate": ({"code": "rate_limit_exceeded", "message": "Slow down."}, EngineBusy),
    "server": ({"code": "server_error", "message": "Oh."}, EngineDown),
    "prompt": ({"code": "invalid_prompt", "message": "No."}, InvalidInput),
    "picture": ({"code": "image_too_large", "message": "No."}, InvalidInput),
    "file": ({"code": "empty_image_file", "message": "No."}, RequestRefused),
    "policy": ({"code": "image_content_policy_violation", "message": "No."}, ContentRefused),
    "Azure, rate": ({"code": "too_many_requests", "message": "Slow down."}, EngineBusy),
    "none": ({"code": None, "message": ""}, EngineDown),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_before_the_first_text_is_an_error_of_its_kind(name: str) -> None:
    error, kind = FAILURES[name]
    failed = {"type": "response.failed", "response": response("failed", error=error)}
    nested = {"type": "error", "error": {"type": error["code"], "param": None, **error}}  # as OpenAI's server sends it
    for event in (failed, {"type": "error", "param": None, **error}, nested):
        with pytest.raises(kind):
            await answer(sent([*begun(), event]), Request(HELLO))


async def test_a_failure_after_text_interrupts_it() -> None:
    failed = {"type": "response.failed", "response": response("failed", error=FAILURES["server"][0])}
    chunks = await answer(sent([*begun(), *said("Tok")[:3], failed]), Request(HELLO, original=words(input="?")))
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert not any("response.failed" in each for each in chunks[-1].relayed)


@pytest.mark.parametrize(
    "malformed",
    [
        "[]",
        "{}",
        '{"type": "response.output_text.delta"}',
        '{"type": "response.output_item.added", "output_index": 0}',
        '{"type": "response.completed", "response": {"usage": {"input_tokens": "many"}}}',
        '{"type": "response.function_call_arguments.delta", "output_index": 7, "delta": "{"}',
        '{"type": "response.completed',
    ],
)
async def test_a_malformed_event_ends_the_answer_and_is_not_relayed(malformed: str) -> None:
    provider = sent([*begun(), *said("Tok")[:3]])
    provider.pieces += (f"data: {malformed}\n\n", *sent(said("yo.")).pieces)
    chunks = await answer(provider, Request(HELLO, original=words(input="?")))
    assert text_of(chunks) == "Tok"
    assert end_of(chunks).reason == FinishReason.INTERRUPTED
    assert malformed not in [each for chunk in chunks for each in chunk.relayed]


async def test_a_stream_without_an_end_is_interrupted() -> None:
    assert end_of(await answer(sent(RESPONSE[:-1]), Request(HELLO))).reason == FinishReason.INTERRUPTED


async def test_thoughts_that_are_only_given_encrypted_begin_an_answer() -> None:
    hidden = [each for each in thought() if "summary" not in each["type"]]
    own = words(input="?")
    first, *_ = await answer(
        sent([*begun(), *hidden, *said("Tokyo.", index=1), ended([])]), Request(HELLO, original=own)
    )
    assert [json.loads(each)["type"] for each in first.relayed][-1] == "response.output_item.done"
    assert not first.text
