"""Requests for a model of another API, and changes that a request asks for."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.integration.unchanged.transparent import events_of, own_fields
from tests.recording_provider import CHAT, RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


ASKED = [{"role": "user", "content": "?"}]


def chat(**more: Any) -> dict[str, Any]:
    """A request to `/v1/chat/completions`."""
    return {"model": "gpt", "messages": ASKED, **more}


def message(**more: Any) -> dict[str, Any]:
    """A request to `/v1/messages`."""
    return {"model": "claude", "max_tokens": 9, "messages": ASKED, **more}


async def test_a_prompt_that_is_changed_on_request_keeps_all_other_fields_and_the_change_is_reported(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    asked = [{"role": "user", "content": "Write to jane@example.org."}]
    body = chat(messages=asked, reasoning_effort="low", temperature=0.3)
    own = {"budget_ms": 9_000, "guard": "personal=mask"}
    reply = await http.post("/v1/chat/completions", json={**body, "hedgerow": own})
    assert reply.status_code == 200, reply.text
    (sent,) = provider.asked
    assert "jane@example.org" not in str(sent.body)
    assert own_fields({**sent.body, "messages": asked}) == own_fields(body), (
        "the gateway's own options are not forwarded"
    )
    assert reply.json()["hedgerow"]["changes"] == [
        {"what": "budget", "to": "9000 ms", "by": "request"},
        {"what": "prompt_masked", "to": "1 email", "by": "request"},
    ]


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
    """The refusals of both providers have the form of the requested API."""
    refused = {
        "gpt": {"message": TOO_LONG["chat/completions"], "type": "invalid_request_error", "param": "messages"},
        "claude": {"message": TOO_LONG["messages"], "type": "invalid_request_error"},
    }
    provider.error = 400, {"error": {**refused[model], "code": "context_length_exceeded"}}
    body = {"model": model, "input": ASKED} if path == "responses" else message(model=model)
    reply = await http.post(f"/v1/{path}", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == TOO_LONG[path]
    assert error["code"] == "context_length_exceeded"
    named = "input" if path == "responses" else "messages"
    assert error.get("param", named) == named  # a provider of Anthropic's own API has none


@pytest.mark.parametrize(("truncation", "status"), [("auto", 200), ("some", 400)])
async def test_a_response_says_itself_whether_its_conversation_may_be_cut(
    http: httpx.AsyncClient, provider: RecordingProvider, truncation: str, status: int
) -> None:
    reply = await http.post("/v1/responses", json={"model": "gpt", "input": "?", "truncation": truncation})
    assert reply.status_code == status
    assert status != 200 or reply.json()["truncation"] == truncation


async def test_a_question_asked_several_times_gets_as_many_answers(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    replies = await asyncio.gather(*(http.post("/v1/chat/completions", json=chat(temperature=0)) for _ in range(5)))
    assert [reply.status_code for reply in replies] == [200] * 5
    assert len(provider.asked) == 5


@pytest.mark.parametrize(("path", "body"), [("chat/completions", chat()), ("messages", message())])
async def test_an_unchanged_request_reports_no_changes_and_no_cut(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str, body: dict[str, Any]
) -> None:
    *begun, last, usage = CHAT
    ended = {**last["choices"][0], "finish_reason": "length"}  # the model's own end
    provider.chat = [*begun, {**last, "choices": [ended]}, usage]
    reply = await http.post(f"/v1/{path}", json=body, headers={"x-stainless-read-timeout": "600"})
    assert not {"changes", "cut"} & reply.json()["hedgerow"].keys(), reply.json()["hedgerow"]
    assert "x-hedgerow-cut" not in reply.headers
    streamed = await http.post(f"/v1/{path}", json={**body, "stream": True})
    (account,) = [event["hedgerow"] for event in events_of(streamed.text) if "hedgerow" in event]
    assert not {"changes", "cut"} & account.keys()


async def test_an_answer_that_does_not_match_its_form_is_the_providers_own(
    http: httpx.AsyncClient, provider: RecordingProvider
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "required": ["a"]}}}
    reply = await http.post("/v1/chat/completions", json=chat(response_format=form))
    assert reply.status_code == 200, reply.text
    assert len(provider.asked) == 1
    checked = await http.post("/v1/chat/completions", json=chat(response_format=form, hedgerow={"repair": False}))
    assert (checked.status_code, checked.json()["error"]["code"]) == (502, "form_broken")
