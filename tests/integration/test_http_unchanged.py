"""What a caller sends by HTTP is what a provider of the same API gets, and what the provider sends comes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.integration.shapes import CHATS, MESSAGES
from tests.integration.transparent import Transparent, transparent_gateway
from tests.recording_provider import CHAT, CONTEXT, MESSAGE, RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
_OURS = {"model", "stream", "stream_options"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Transparent]:
    async with transparent_gateway(tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture
def provider(served: Transparent) -> RecordingProvider:
    served.provider.reset()
    return served.provider


@pytest_asyncio.fixture(loop_scope="module")
async def http(served: Transparent) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=20) as client:
        yield client


def _sent(body: dict[str, Any]) -> dict[str, Any]:
    return {name: given for name, given in body.items() if name not in _OURS}


def _events(text: str) -> list[Any]:
    """The events of a stream."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def _without_account(event: Any) -> Any:
    return {name: given for name, given in event.items() if name != "hedgerow"}


@pytest.mark.parametrize("shape", CHATS, ids=list(CHATS))
async def test_a_chat_completion_arrives_as_it_was_sent(
    http: httpx.AsyncClient, provider: RecordingProvider, shape: str
) -> None:
    body = {"model": "gpt", **CHATS[shape]}
    reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert _sent(asked.body) == _sent(body)
    assert asked.body["model"] == "gpt-x"
    assert asked.body["stream_options"] == {**body.get("stream_options", {}), "include_usage": True}


@pytest.mark.parametrize("shape", MESSAGES, ids=list(MESSAGES))
async def test_a_message_arrives_as_it_was_sent(
    http: httpx.AsyncClient, provider: RecordingProvider, shape: str
) -> None:
    body = {"model": "claude", "max_tokens": 3_000, **MESSAGES[shape]}
    reply = await http.post("/v1/messages", json=body)
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert _sent(asked.body) == _sent(body)
    assert asked.body["model"] == "claude-x"


_TURNS = 500
LONG = {
    "many messages": [{"role": ("user", "assistant")[turn % 2], "content": f"Turn {turn}."} for turn in range(_TURNS)],
    "a megabyte": [{"role": "user", "content": "A word. " * 131_072}, {"role": "assistant", "content": "I see."}],
    "a million tokens": [{"role": "user", "content": "A word. " * 600_000}, {"role": "assistant", "content": "I see."}],
}


@pytest.mark.parametrize("path", ["chat/completions", "messages"])
@pytest.mark.parametrize("said", LONG)
async def test_a_long_conversation_arrives_whole(
    http: httpx.AsyncClient, provider: RecordingProvider, said: str, path: str
) -> None:
    """The model's context is its limit."""
    messages = [*LONG[said], {"role": "user", "content": "And now?"}]
    body = {"model": "claude" if path == "messages" else "gpt", "max_tokens": 9, "messages": messages}
    reply = await http.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text[:500]
    (asked,) = provider.asked
    assert asked.body["messages"] == messages


async def test_how_much_the_context_of_a_model_by_url_holds_is_what_its_server_says(http: httpx.AsyncClient) -> None:
    async def told() -> dict[str, Any]:
        return {row["id"]: row.get("max_model_len") for row in (await http.get("/v1/models")).json()["data"]}

    while (found := await told())["gpt"] is None:  # the gateway asks for it while it serves
        await asyncio.sleep(0.05)
    assert (found["gpt"], found["claude"]) == (CONTEXT, None)


async def test_a_chat_completion_comes_back_as_it_was_streamed(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}], "stream": True}
    reply = await http.post("/v1/chat/completions", json={**body, "stream_options": {"include_usage": True}})
    *events, last = _events(reply.text)
    assert [*events, _without_account(last)] == list(CHAT)
    assert last["hedgerow"]["model"] == "gpt"
    assert reply.text.endswith("data: [DONE]\n\n")
    reply = await http.post("/v1/chat/completions", json=body)
    *events, last = _events(reply.text)
    assert [*events, _without_account(last)] == list(CHAT[:-1]), "usage is for clients that ask for it"


async def test_a_message_comes_back_as_it_was_streamed(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "stream": True}
    reply = await http.post("/v1/messages", json=body)
    assert [_without_account(event) for event in _events(reply.text)] == list(MESSAGE)


async def test_an_answer_in_one_piece_has_all_that_the_provider_said(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    asked = {"messages": [{"role": "user", "content": "?"}]}
    chat = (await http.post("/v1/chat/completions", json={"model": "gpt", **asked})).json()
    assert chat["system_fingerprint"] == "fp_1"
    assert chat["service_tier"] == "default"
    assert chat["usage"] == CHAT[-1]["usage"]
    (choice,) = chat["choices"]
    assert choice["finish_reason"] == "stop"
    message = {"role": "assistant", "content": "Tokyo.", "annotations": [{"type": "url_citation"}]}
    assert choice["message"] == message
    told = (await http.post("/v1/messages", json={"model": "claude", "max_tokens": 9, **asked})).json()
    assert told["id"] == "msg_7"
    assert told["content"] == [
        {"type": "thinking", "thinking": "Japan, so", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Tokyo."},
    ]
    assert told["stop_reason"] == "end_turn"
    assert told["usage"] == {
        "input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 12, "service_tier": "standard",
    }  # fmt: skip


async def test_headers_for_the_provider_pass_and_those_that_say_who_calls_do_not(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    told = {
        "anthropic-beta": "context-1m-2025-08-07",
        "anthropic-version": "2023-06-01",
        "x-api-key": "the caller's",
        "cookie": "c=1",
        "x-forwarded-for": "10.0.0.1",
    }
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
    await http.post("/v1/messages", json=body, headers=told)
    (asked,) = provider.asked
    assert asked.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert asked.headers["x-api-key"] == "the operator's"
    assert not {"cookie", "x-forwarded-for"} & asked.headers.keys()
    told = {"openai-organization": "org-caller", "openai-beta": "assistants=v2", "authorization": "Bearer caller"}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}]}
    await http.post("/v1/chat/completions", json=body, headers=told)
    asked = provider.asked[-1]
    assert asked.headers["openai-beta"] == "assistants=v2"
    assert asked.headers["authorization"] == "Bearer the operator's"
    assert "openai-organization" not in asked.headers


async def test_what_another_api_has_no_counterpart_for_is_refused_by_name(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "claude", "messages": [{"role": "user", "content": "?"}], "reasoning_effort": "minimal"}
    reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert "reasoning_effort" in reply.json()["error"]["message"]
    body = {**body, "model": "gpt", "max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1_024}}
    del body["reasoning_effort"]
    reply = await http.post("/v1/messages", json=body)
    assert reply.status_code == 400
    assert "thinking" in reply.json()["error"]["message"]
    assert provider.asked == []


async def test_what_another_api_has_under_another_name_is_sent_by_that(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    asked = {"messages": [{"role": "user", "content": "?"}]}
    chat = {**asked, "model": "claude", "reasoning_effort": "high", "user": "ann"}
    assert (await http.post("/v1/chat/completions", json=chat)).status_code == 200
    given = {"output_config": {"effort": "high"}, "metadata": {"user_id": "ann"}}
    message = {**asked, "model": "gpt", "max_tokens": 9, **given}
    assert (await http.post("/v1/messages", json=message)).status_code == 200
    to_claude, to_gpt = (each.body for each in provider.asked)
    assert (to_claude["output_config"], to_claude["metadata"]) == ({"effort": "high"}, {"user_id": "ann"})
    assert (to_gpt["reasoning_effort"], to_gpt["user"]) == ("high", "ann")


async def test_what_changes_no_answer_does_not_keep_a_request_from_another_api(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    text = {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}}
    body = {
        "model": "gpt",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [text]}],
        "metadata": {"user_id": "7"},
        "thinking": {"type": "disabled"},
    }
    reply = await http.post("/v1/messages", json=body)
    assert reply.status_code == 200, reply.text
    assert [block["text"] for block in reply.json()["content"]] == ["Tokyo."]


async def test_the_gateways_own_options_do_not_reach_the_provider(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}], "hedgerow": {"budget_ms": 9_000}}
    assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
    assert "hedgerow" not in provider.asked[0].body


async def test_a_prompt_that_the_gateway_has_changed_keeps_all_other_fields(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {
        "model": "gpt",
        "messages": [{"role": "user", "content": "Write to jane@example.org."}],
        "reasoning_effort": "low",
        "temperature": 0.3,
        "hedgerow": {"guard": "personal=mask"},
    }
    reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    (asked,) = provider.asked
    assert "jane@example.org" not in str(asked.body)
    assert (asked.body["reasoning_effort"], asked.body["temperature"]) == ("low", 0.3)


async def test_a_field_that_the_provider_refuses_comes_back_with_its_own_words(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    problem = {"message": "Unknown parameter: 'field_of_tomorrow'.", "type": "invalid_request_error"}
    provider.error = 400, {"error": {**problem, "param": "field_of_tomorrow", "code": "unknown_parameter"}}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}], "field_of_tomorrow": 1}
    reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"] == {**problem, "param": "field_of_tomorrow", "code": "unknown_parameter"}


TOO_LONG = {
    "chat/completions": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens. Please "
        "reduce the length of the messages."
    ),
    "messages": "prompt is too long: 9001 tokens > 8192 maximum",
}
TOO_LONG["responses"] = TOO_LONG["chat/completions"]


@pytest.mark.parametrize("path", TOO_LONG)
@pytest.mark.parametrize("model", ["gpt", "claude"])
async def test_what_is_too_long_for_the_model_is_refused_as_clients_know_it(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str, model: str
) -> None:
    """Of either provider, in the dialect that is asked in."""
    refused = {
        "gpt": {"message": TOO_LONG["chat/completions"], "type": "invalid_request_error", "param": "messages"},
        "claude": {"message": TOO_LONG["messages"], "type": "invalid_request_error"},
    }
    provider.error = 400, {"error": {**refused[model], "code": "context_length_exceeded"}}
    asked = [{"role": "user", "content": "?"}]
    body = {"input": asked} if path == "responses" else {"messages": asked, "max_tokens": 9}
    reply = await http.post(f"/v1/{path}", json={"model": model, **body})
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == TOO_LONG[path]
    assert error["code"] == "context_length_exceeded"
    named = "input" if path == "responses" else "messages"
    assert error.get("param", named) == named  # a provider of Anthropic's own API has none


@pytest.mark.parametrize(("truncation", "status"), [("auto", 200), ("some", 400)])
@pytest.mark.parametrize("how", ["header", "body"])
async def test_whether_a_conversation_may_be_cut_is_said_in_a_word(
    http: httpx.AsyncClient, provider: RecordingProvider, how: str, truncation: str, status: int
) -> None:
    headers = {"x-hedgerow-truncation": truncation} if how == "header" else {}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}]}
    own = {"hedgerow": {"truncation": truncation}} if how == "body" else {}
    reply = await http.post("/v1/chat/completions", json={**body, **own}, headers=headers)
    assert reply.status_code == status
    told = await http.post("/v1/responses", json={"model": "gpt", "input": "?", "truncation": truncation})
    assert told.status_code == status
    assert status != 200 or told.json()["truncation"] == truncation


async def test_who_asks_the_same_several_times_gets_as_many_answers(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "gpt", "messages": [{"role": "user", "content": "A name for a cat?"}], "temperature": 0}
    replies = await asyncio.gather(*(http.post("/v1/chat/completions", json=body) for _ in range(5)))
    assert [reply.status_code for reply in replies] == [200] * 5
    assert len(provider.asked) == 5


@pytest.mark.parametrize(
    ("path", "body"),
    [("chat/completions", {"model": "gpt"}), ("messages", {"model": "claude", "max_tokens": 9})],
    ids=["chat", "messages"],
)
async def test_a_request_that_nothing_is_done_to_is_told_no_changes_and_no_cut(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str, body: dict[str, Any]
) -> None:
    own = dict(CHAT[-2]), {**CHAT[-2]["choices"][0], "finish_reason": "length"}  # the model's own end
    provider.chat = [*CHAT[:-2], {**own[0], "choices": [own[1]]}, CHAT[-1]]
    asked = {**body, "messages": [{"role": "user", "content": "?"}]}
    reply = await http.post(f"/v1/{path}", json=asked, headers={"x-stainless-read-timeout": "600"})
    assert not {"changes", "cut"} & reply.json()["hedgerow"].keys(), reply.json()["hedgerow"]
    assert "x-hedgerow-cut" not in reply.headers
    (last,) = [
        event
        for event in _events((await http.post(f"/v1/{path}", json={**asked, "stream": True})).text)
        if "hedgerow" in event
    ]
    assert not {"changes", "cut"} & last["hedgerow"].keys()


async def test_what_a_request_asks_for_is_told_as_its_own(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    asked = {"model": "gpt", "messages": [{"role": "user", "content": "Write to jane@example.org."}]}
    options = {"budget_ms": 9_000, "guard": "personal=mask"}
    told = (await http.post("/v1/chat/completions", json={**asked, "hedgerow": options})).json()["hedgerow"]
    assert told["changes"] == [
        {"what": "budget", "to": "9000 ms", "by": "request"},
        {"what": "prompt_masked", "to": "1 email", "by": "request"},
    ]


async def test_an_answer_that_does_not_match_its_form_is_the_providers_own(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}}}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}], "response_format": form}
    reply = await http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert len(provider.asked) == 1
    checked = await http.post("/v1/chat/completions", json={**body, "hedgerow": {"repair": False}})
    assert (checked.status_code, checked.json()["error"]["code"]) == (502, "form_broken")
