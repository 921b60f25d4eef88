"""A provider that ignores `stream: true`: callers get its answer, in one piece or as a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.answering_provider import TEXT, answered
from tests.integration.unchanged.transparent import events_of
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
CHAT = {"model": "gpt", "messages": [{"role": "user", "content": "?"}]}
ASKED = {
    "chat/completions": CHAT,
    "messages": {**CHAT, "model": "claude", "max_tokens": 9},
    "responses": {"model": "resp", "input": "?"},
}


def _in_one_piece(path: str, body: Mapping[str, Any]) -> Any:
    return answered(path, {**body, "stream": False})


@pytest.mark.parametrize("path", ASKED)
async def test_an_answer_in_one_piece_arrives_as_the_provider_wrote_it(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str
) -> None:
    provider.says = _in_one_piece
    reply = (await http.post(f"/v1/{path}", json=ASKED[path])).json()
    assert reply.pop("hedgerow")["finish_reason"] == "stop"
    said = _in_one_piece(path, ASKED[path])
    assert reply == json.loads(json.dumps(said))


@pytest.mark.parametrize("path", ASKED)
async def test_the_same_answer_as_a_stream(http: httpx.AsyncClient, provider: RecordingProvider, path: str) -> None:
    provider.says = _in_one_piece
    reply = await http.post(f"/v1/{path}", json={**ASKED[path], "stream": True})
    events = events_of(reply.text)
    pieces = {
        "chat/completions": lambda: [event["choices"][0]["delta"].get("content", "") for event in events],
        "messages": lambda: [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"],
        "responses": lambda: [event["delta"] for event in events if event["type"] == "response.output_text.delta"],
    }[path]()
    assert "".join(pieces) == TEXT
    (account,) = (
        event["hedgerow"] for parsed in events for event in (parsed, parsed.get("response", {})) if "hedgerow" in event
    )
    assert account["finish_reason"] == "stop"


@pytest.mark.parametrize("path", ASKED)
async def test_a_caller_of_another_api_gets_it_translated(
    http: httpx.AsyncClient, provider: RecordingProvider, path: str
) -> None:
    """Every provider here is asked by another API than its own."""
    provider.says = _in_one_piece
    other = {"chat/completions": "claude", "messages": "gpt", "responses": "claude"}[path]
    reply = (await http.post(f"/v1/{path}", json={**ASKED[path], "model": other})).json()
    assert TEXT in json.dumps(reply, ensure_ascii=False)
    assert reply["hedgerow"]["finish_reason"] == "stop"
