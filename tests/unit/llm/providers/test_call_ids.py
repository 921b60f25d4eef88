"""Conversations with ids of calls that a provider does not take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Message, Original, Request, ToolCall
from services.llm.errors import RequestRefused
from tests.unit.llm.providers.asking import answer_of
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, text_of

ID = "toolu_01A"
CONVERSATION = (
    Message("user", "?"),
    Message("assistant", tool_calls=(ToolCall(ID, "f", "{}"), ToolCall("b", "f", "{}"))),
    Message("tool", "1", tool_call_id=ID),
    Message("tool", "2", tool_call_id="b"),
)
CALLS = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in (ID, "b")]
OWN = {
    "messages": [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": ID, "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
}


def ids(body: bytes) -> list[str]:
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return [*(call["id"] for call in messages[1]["tool_calls"]), *(each["tool_call_id"] for each in messages[2:])]


def refusing(said: str) -> SimulatedProvider:
    return SimulatedProvider(refuses={ID.encode(): (400, {"error": {"message": said}})})


@pytest.mark.parametrize(
    "said",
    [
        f"Tool call id was {ID} but must be a-z, A-Z, 0-9, with a length of 9.",
        "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40.",
    ],
)
@pytest.mark.parametrize("own", [None, Original("chat_completions", json.dumps(OWN).encode())])
async def test_a_request_is_repeated_with_ids_that_are_taken(said: str, own: Original | None) -> None:
    provider = refusing(said)
    assert text_of(await answer_of(provider.engine(), Request(CONVERSATION, original=own))) == "Hello."
    first, second = (ids(each.content) for each in provider.requests)
    assert first == [ID, "b"] * 2
    assert second[:2] == second[2:]
    assert len({*second}) == 2
    assert all(len(each) == 9 and each.isalnum() for each in second)


async def test_another_refusal_is_not_repeated() -> None:
    provider = refusing("no such tool")
    with pytest.raises(RequestRefused):
        await answer_of(provider.engine(), Request(CONVERSATION))
    assert len(provider.requests) == 1
