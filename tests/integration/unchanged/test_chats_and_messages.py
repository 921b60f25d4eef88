"""A caller's request by HTTP reaches a provider of the same API as it was sent, and the answer comes back likewise."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.integration.unchanged.shapes import CHATS, MESSAGES
from tests.integration.unchanged.transparent import events_of, own_fields
from tests.recording_provider import CHAT, CONTEXT, MESSAGE, RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


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
    assert own_fields(asked.body) == own_fields(body)
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
    assert own_fields(asked.body) == own_fields(body)
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
    async def known() -> dict[str, Any]:
        return {row["id"]: row.get("max_model_len") for row in (await http.get("/v1/models")).json()["data"]}

    while (found := await known())["gpt"] is None:  # the gateway asks for it while it serves
        await asyncio.sleep(0.05)
    assert (found["gpt"], found["claude"]) == (CONTEXT, None)


async def test_a_chat_completion_comes_back_as_it_was_streamed(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}], "stream": True}
    reply = await http.post("/v1/chat/completions", json={**body, "stream_options": {"include_usage": True}})
    *events, last = events_of(reply.text)
    assert [*events, _without_account(last)] == list(CHAT)
    assert last["hedgerow"]["model"] == "gpt"
    assert reply.text.endswith("data: [DONE]\n\n")
    reply = await http.post("/v1/chat/completions", json=body)
    *events, last = events_of(reply.text)
    assert [*events, _without_account(last)] == list(CHAT[:-1]), "only clients that ask for usage receive it"


async def test_a_message_comes_back_as_it_was_streamed(http: httpx.AsyncClient, provider: RecordingProvider) -> None:
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "stream": True}
    reply = await http.post("/v1/messages", json=body)
    assert [_without_account(event) for event in events_of(reply.text)] == list(MESSAGE)


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
    reply = (await http.post("/v1/messages", json={"model": "claude", "max_tokens": 9, **asked})).json()
    assert reply["id"] == "msg_7"
    assert reply["content"] == [
        {"type": "thinking", "thinking": "Japan, so", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Tokyo."},
    ]
    assert reply["stop_reason"] == "end_turn"
    assert reply["usage"] == {
        "input_tokens": 9, "cache_read_input_tokens": 4, "output_tokens": 12, "service_tier": "standard",
    }  # fmt: skip


async def test_headers_for_the_provider_pass_and_those_that_identify_the_caller_do_not(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    more = {
        "anthropic-beta": "context-1m-2025-08-07",
        "anthropic-version": "2023-06-01",
        "x-api-key": "the caller's",
        "cookie": "c=1",
        "x-forwarded-for": "10.0.0.1",
    }
    body = {"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}
    await http.post("/v1/messages", json=body, headers=more)
    (asked,) = provider.asked
    assert asked.headers["anthropic-beta"] == "context-1m-2025-08-07"
    assert asked.headers["x-api-key"] == "the operator's"
    assert not {"cookie", "x-forwarded-for"} & asked.headers.keys()
    more = {"openai-organization": "org-caller", "openai-beta": "assistants=v2", "authorization": "Bearer caller"}
    body = {"model": "gpt", "messages": [{"role": "user", "content": "?"}]}
    await http.post("/v1/chat/completions", json=body, headers=more)
    asked = provider.asked[-1]
    assert asked.headers["openai-beta"] == "assistants=v2"
    assert asked.headers["authorization"] == "Bearer the operator's"
    assert "openai-organization" not in asked.headers
