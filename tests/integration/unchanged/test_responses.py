"""A caller's response request reaches a provider of Responses as it was sent, and its answer comes back likewise."""

from __future__ import annotations

import httpx
import pytest

from tests import recorded_response
from tests.integration.unchanged.response_shapes import RESPONSES
from tests.integration.unchanged.transparent import events_of
from tests.recorded_response import RESPONSE, THOUGHT
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("shape", RESPONSES, ids=list(RESPONSES))
async def test_a_response_arrives_as_it_was_sent(
    http: httpx.AsyncClient, provider: RecordingProvider, shape: str
) -> None:
    body = {"model": "resp", **RESPONSES[shape]}
    reply = await http.post("/v1/responses", json=body)
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert asked.path == "/v1/responses"
    assert asked.body == {**body, "model": "gpt-x", "stream": True}


async def test_a_response_comes_back_as_it_was_streamed(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    reply = await http.post("/v1/responses", json={"model": "resp", "input": "?", "stream": True})
    *events, last = events_of(reply.text)
    assert events == list(RESPONSE[:-1])
    assert last["response"].pop("hedgerow")["model"] == "resp"
    assert last == RESPONSE[-1]
    named = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    assert named == [event["type"] for event in RESPONSE]


async def test_a_response_in_one_piece_is_the_providers_last_word(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    reply = (await http.post("/v1/responses", json={"model": "resp", "input": "?"})).json()
    account = reply.pop("hedgerow")
    assert reply == RESPONSE[-1]["response"]
    assert (account["prompt_tokens"], account["completion_tokens"]) == (9, 12)


async def test_a_refused_field_of_a_response_comes_back_with_the_providers_own_words(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    problem = {"message": "Previous response with id 'resp_0' not found.", "type": "invalid_request_error"}
    problem |= {"code": "previous_response_not_found", "param": "previous_response_id"}
    provider.error = 400, {"error": problem}
    body = {"model": "resp", "input": "?", "previous_response_id": "resp_0"}
    reply = await http.post("/v1/responses", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"] == problem


async def test_fields_that_clients_of_responses_always_send_reach_another_api(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {
        "model": "gpt",
        "input": [
            {"role": "user", "content": "Weather in Tokyo?"},
            THOUGHT,
            {**recorded_response.message("A moment."), "phase": "commentary"},
            recorded_response.CALL,
            {"type": "function_call_output", "call_id": "call_1", "output": "21"},
        ],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto", "effort": None},
        "truncation": "disabled",
        "tool_choice": "auto",
        "prompt_cache_key": "k",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
    }
    reply = await http.post("/v1/responses", json=body)
    assert reply.status_code == 200, reply.text
    assert [message["role"] for message in provider.asked[0].body["messages"]] == ["user", "assistant", "tool"]


async def test_a_provider_of_responses_alone_gets_all_others_translated(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    said = {"messages": [{"role": "user", "content": "?"}], "model": "alone", "max_tokens": 3_000}
    chat = (await http.post("/v1/chat/completions", json=said)).json()
    assert chat["choices"][0]["message"]["content"] == "Tokyo."
    reply = (await http.post("/v1/messages", json=said)).json()
    assert [block["type"] for block in reply["content"]] == ["thinking", "text"]
    for asked in provider.asked:
        assert asked.path == "/v1/responses"
        assert asked.body == {
            "model": "gpt-x",
            "input": [{"role": "user", "content": "?"}],
            "max_output_tokens": 3_000,
            "store": False,
            "stream": True,
        }


async def test_a_chat_completion_goes_to_chat_completions_where_a_provider_has_both(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "resp", "messages": [{"role": "user", "content": "?"}], "reasoning_effort": "low"}
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    (asked,) = provider.asked
    assert (asked.path, asked.body["reasoning_effort"]) == ("/v1/chat/completions", "low")


async def test_a_masked_response_request_keeps_all_other_fields(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    seen = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
    text = {"type": "input_text", "text": "For jane@example.org."}
    output = {"type": "function_call_output", "call_id": "kept", "output": '{"mail": "jane@example.org"}'}
    body = {
        "model": "resp",
        "instructions": "Be brief.",
        "input": [THOUGHT, {"role": "user", "content": [text, seen]}, output],
        "reasoning": {"effort": "low"},
        "previous_response_id": "resp_1",
        "hedgerow": {"guard": "personal=mask"},
    }
    reply = await http.post("/v1/responses", json=body)
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert "jane@example.org" not in str(asked.body)
    thought, message, result = asked.body["input"]
    assert (thought, message["content"][1], result["call_id"]) == (THOUGHT, seen, "kept")
    assert (asked.body["instructions"], asked.body["reasoning"]) == ("Be brief.", {"effort": "low"})
    assert asked.body["previous_response_id"] == "resp_1"
    assert "hedgerow" not in asked.body


async def test_a_private_text_beside_a_picture_is_masked_and_the_picture_stays(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    text = {"type": "input_text", "text": "For jane@example.org."}
    seen = {"type": "input_image", "image_url": "https://a.test/b.png", "detail": "low"}
    called = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": [text, seen]}
    body = {"model": "resp", "input": [{"role": "user", "content": [text, seen]}, called, output]}
    reply = await http.post("/v1/responses", json={**body, "hedgerow": {"guard": "personal=mask"}})
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    asking, _, result = asked.body["input"]
    assert "jane" not in str(asked.body)
    assert (asking["content"][1], result["output"][1]) == (seen, seen)


async def test_a_private_text_in_several_parts_of_a_response_reaches_no_provider(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    parts = [{"type": "input_text", "text": text} for text in ("For jane@exam", "ple.org.")]
    body = {"model": "resp", "input": [{"role": "user", "content": parts}], "reasoning": {"effort": "low"}}
    reply = await http.post("/v1/responses", json={**body, "hedgerow": {"guard": "personal=mask"}})
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    (message,) = asked.body["input"]
    assert "jane" not in str(message)
    assert asked.body["reasoning"] == {"effort": "low"}
    seen = {"type": "input_image", "file_id": "file_1", "detail": "auto"}
    body["input"] = [{"role": "user", "content": [*parts, seen]}]
    refused = await http.post("/v1/responses", json={**body, "hedgerow": {"guard": "personal=mask"}})
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("input[0].content[2]: ")


async def test_a_guard_reads_what_no_other_api_has(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    called = {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT 1"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "jane@example.org"}
    body = {"model": "resp", "input": [called, output], "hedgerow": {"guard": "personal=refuse"}}
    reply = await http.post("/v1/responses", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "guard_refused")
    assert provider.asked == []
