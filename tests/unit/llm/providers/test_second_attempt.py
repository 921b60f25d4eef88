"""Requests that a provider refuses for thoughts or ids of calls of another model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.llm.engine import Message, Original, Request, ToolCall
from services.llm.errors import RequestRefused
from services.llm.providers.second_attempt import without_thinking
from tests.recorded_response import RESPONSE
from tests.unit.llm.dialects.responses import sent
from tests.unit.llm.providers.asking import answer_of
from tests.unit.llm.providers.messages_api import ended, engine, started, text
from tests.unit.llm.providers.simulated_provider import SimulatedProvider, text_of

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": ""}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "noon"}
CLEARS = {"type": "clear_thinking_20251015", "keep": "all"}
CUTS = {"type": "clear_tool_uses_20250919"}
OF_ANOTHER = "messages.1.content.0: Invalid `signature` in `thinking` block"


def refusal(said: str, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"type": "invalid_request_error", "message": said}}


async def asked(provider: SimulatedProvider, api: str, **body: Any) -> list[dict[str, Any]]:
    """The bodies that a provider gets of a request in its own words."""
    own = Original(api, json.dumps({"model": "m", **body}, separators=(",", ":")).encode())
    request = Request((Message("user", "?"),), original=own)
    model: Any = provider.engine(own={"apis": ("responses",)}) if api == "responses" else engine(provider)
    assert text_of(await answer_of(model, request))
    return [json.loads(each.content) for each in provider.requests]


def claude(said: str = OF_ANOTHER) -> SimulatedProvider:
    return SimulatedProvider((started(), *text("Hi."), *ended()), refuses={b'"signature"': refusal(said)})


async def test_a_request_is_repeated_without_the_thoughts_of_another_model() -> None:
    said = {"type": "text", "text": "Hello."}
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [THOUGHT]},
        {"role": "assistant", "content": [THOUGHT, said]},
        {"role": "user", "content": "And?"},
    ]
    rest = {"max_tokens": 9, "thinking": {"type": "adaptive"}, "context_management": {"edits": [CLEARS]}}
    first, second = await asked(claude(), "messages", messages=turns, **rest)
    assert first["messages"] == turns
    assert second == {**first, "messages": [turns[0], {"role": "assistant", "content": [said]}, turns[3]]}


async def test_so_is_a_chat_completion_with_the_thoughts_of_litellm() -> None:
    answered = {"role": "assistant", "content": "Hello.", "thinking_blocks": [THOUGHT]}
    turns = [{"role": "user", "content": "?"}, answered, {"role": "user", "content": "And?"}]
    first, second = await asked(claude(), "chat_completions", messages=turns)
    said = {"type": "text", "text": "Hello."}
    assert [each["messages"][1]["content"] for each in (first, second)] == [[THOUGHT, said], [said]]


@pytest.mark.parametrize(("edits", "kept"), [([CLEARS], None), ([CLEARS, CUTS], {"edits": [CUTS]})])
async def test_within_a_turn_the_model_does_not_think_then(edits: list[object], kept: object) -> None:
    turns = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [THOUGHT, CALL]},
        {"role": "user", "content": [RESULT]},
    ]
    rest = {"max_tokens": 9, "thinking": {"type": "adaptive"}, "context_management": {"edits": edits}}
    _, second = await asked(claude(), "messages", messages=turns, **rest)
    assert (second.get("thinking"), second.get("context_management")) == (None, kept)
    assert [each["content"] for each in second["messages"][1:]] == [[CALL], [RESULT]]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
        (400, "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could not …"),
    ],
)
async def test_items_of_reasoning_that_a_provider_does_not_know_are_left_out(status: int, said: str) -> None:
    provider = SimulatedProvider(sent(RESPONSE).pieces, refuses={b'"type":"reasoning"': refusal(said, status)})
    items = [{"role": "user", "content": "?"}, {"type": "reasoning", "id": "rs_1", "summary": []}]
    items += [{"role": "assistant", "content": "A"}, {"role": "user", "content": "And?"}]
    _, second = await asked(provider, "responses", input=items)
    assert second["input"] == [items[0], *items[2:]]


async def test_another_refusal_of_a_conversation_with_thoughts_is_not_repeated() -> None:
    provider = claude("max_tokens: too large")
    with pytest.raises(RequestRefused):
        await asked(provider, "messages", messages=[{"role": "assistant", "content": [THOUGHT]}], max_tokens=9)
    assert len(provider.requests) == 1


ID = "toolu_01A"
CONVERSATION = (
    Message("user", "?"),
    Message("assistant", tool_calls=(ToolCall(ID, "f", "{}"), ToolCall("b", "f", "{}"))),
    Message("tool", "1", tool_call_id=ID),
    Message("tool", "2", tool_call_id="b"),
)
IDENTIFIED = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in (ID, "b")]
OWN = {
    "messages": [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": IDENTIFIED},
        {"role": "tool", "tool_call_id": ID, "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
}


def ids(body: bytes) -> list[str]:
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    return [*(call["id"] for call in messages[1]["tool_calls"]), *(each["tool_call_id"] for each in messages[2:])]


def refusing_ids(said: str) -> SimulatedProvider:
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
    provider = refusing_ids(said)
    assert text_of(await answer_of(provider.engine(), Request(CONVERSATION, original=own))) == "Hello."
    first, second = (ids(each.content) for each in provider.requests)
    assert first == [ID, "b"] * 2
    assert second[:2] == second[2:]
    assert len({*second}) == 2
    assert all(len(each) == 9 and each.isalnum() for each in second)


async def test_another_refusal_of_a_conversation_with_ids_is_not_repeated() -> None:
    provider = refusing_ids("no such tool")
    with pytest.raises(RequestRefused):
        await answer_of(provider.engine(), Request(CONVERSATION))
    assert len(provider.requests) == 1


@pytest.mark.parametrize("edits", [["x"], [5, {"type": 5}], 5, "x", {"type": "x"}])
def test_edits_that_no_api_has_are_left_for_it_to_refuse(edits: Any) -> None:
    managed = {"context_management": {"edits": edits}}
    assert without_thinking({**managed, "thinking": {"type": "adaptive"}}) == managed
