"""A request goes on with a stored response by its id, with each kind of model behind the gateway."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests import recorded_response
from tests.integration.stored_responses.clients import RESULT, TOOL, USER, text_in
from tests.recorded_response import CALL, RESPONSE, THOUGHT
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]
MODELS = ["gpt", "claude", "resp", "alone"]


def _called() -> list[recorded_response.Event]:
    """A thought and a call, each as a provider of Responses streams it."""
    events = [*recorded_response.begun(), *recorded_response.thought(), *recorded_response.called(1)]
    return recorded_response.numbered([*events, recorded_response.ended([THOUGHT, CALL])])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", MODELS)
async def test_a_model_of_every_api_gets_the_whole_conversation(
    client: openai.AsyncOpenAI, provider: RecordingProvider, model: str, streamed: bool
) -> None:
    asked: dict[str, Any] = {"model": model, "max_output_tokens": 9}

    async def ask(question: str, **fields: Any) -> Any:
        if not streamed:
            return await client.responses.create(input=question, **asked, **fields)
        async with client.responses.stream(input=question, **asked, **fields) as events:
            async for _ in events:
                pass
            return await events.get_final_response()

    first = await ask("Capital of Japan?", instructions="Speak like a pirate.")
    assert (first.output_text, first.store, first.previous_response_id) == ("Tokyo.", True, None)
    second = await ask("And its river?", previous_response_id=first.id)
    assert (second.store, second.previous_response_id) == (True, first.id)
    assert recorded_response.ID != first.id != second.id != recorded_response.ID, (
        "the gateway's ids differ from the provider's"
    )
    third = await ask("Thanks.", previous_response_id=second.id, store=False)
    assert (third.store, third.previous_response_id) == (False, second.id)

    body = provider.asked[-1].body
    assert "pirate" not in json.dumps(body)
    said = [each for each in body.get("messages") or body["input"] if each.get("type") != "reasoning"]
    assert [each["role"] for each in said] == ["user", "assistant"] * 2 + ["user"]
    assert [text_in(each) for each in said] == ["Capital of Japan?", "Tokyo.", "And its river?", "Tokyo.", "Thanks."]
    assert "previous_response_id" not in body
    assert body.get("store", False) is False
    assert (await client.responses.retrieve(second.id)).output_text == "Tokyo."
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(third.id)


async def test_thoughts_calls_and_results_go_back_unchanged(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    provider.response = _called()
    first = await client.responses.create(model="resp", input="Weather in Tokyo?", tools=[TOOL])
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    provider.response = RESPONSE
    second = await client.responses.create(
        model="resp", input=[RESULT], tools=[TOOL], previous_response_id=first.id, stream=True
    )
    events = [event async for event in second]
    reported: list[Any] = [
        event.response for event in events if event.type in ("response.created", "response.completed")
    ]
    assert [(each.previous_response_id, each.store) for each in reported] == [(first.id, True)] * 2
    question = {"type": "message", "role": "user", "content": "Weather in Tokyo?"}
    assert provider.asked[-1].body["input"] == [question, THOUGHT, CALL, RESULT]
    assert provider.asked[-1].body["store"] is False

    third = await client.responses.create(model="gpt", input="Sure?", tools=[TOOL], previous_response_id=reported[1].id)
    assert third.output_text == "Tokyo."
    roles = [each["role"] for each in provider.asked[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    items = [item async for item in client.responses.input_items.list(third.id, order="asc", limit=2)]
    assert [item.type for item in items] == [
        *("message", "reasoning", "function_call", "function_call_output"),
        *(each["type"] for each in RESPONSE[-1]["response"]["output"]),
        "message",
    ]


async def test_a_thought_that_the_gateway_wrote_is_unknown_to_a_provider(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="claude", input=[USER], max_output_tokens=9)
    assert [item.type for item in first.output] == ["reasoning", "message"]
    await client.responses.create(model="resp", input=[USER], previous_response_id=first.id)
    items = provider.asked[-1].body["input"]
    assert [(item["type"], item.get("id")) for item in items] == [("message", None)] * 3


async def test_a_call_that_the_gateway_wrote_goes_back_with_its_result(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    function = {"name": "weather", "arguments": '{"city":"Tokyo"}'}
    delta = {"tool_calls": [{"index": 0, "id": "call_9", "type": "function", "function": function}]}
    same = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x"}
    provider.turns = [
        [
            {**same, "choices": [{"index": 0, "delta": delta}]},
            {**same, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        ]
    ]
    first = await client.responses.create(model="gpt", input="Weather in Tokyo?", tools=[TOOL])
    (call,) = first.output
    assert call.type == "function_call"
    result: Any = {**RESULT, "call_id": call.call_id}
    second = await client.responses.create(model="gpt", input=[result], tools=[TOOL], previous_response_id=first.id)
    assert second.output_text == "Tokyo."
    question, called, answered = provider.asked[-1].body["messages"]
    assert (question["content"], called["tool_calls"][0]["id"]) == ("Weather in Tokyo?", "call_9")
    assert (answered["tool_call_id"], answered["content"]) == ("call_9", "21")


async def test_invalid_and_unpermitted_options_of_stored_state_are_refused(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="conversation"):
        await client.responses.create(model="resp", input="?", conversation="conv_1")
    with pytest.raises(openai.BadRequestError, match="store: true or false"):
        await client.responses.create(model="resp", input="?", store="yes")  # type: ignore[call-overload]
    with pytest.raises(openai.BadRequestError, match="previous_response_id: a string"):
        await client.responses.create(model="resp", input="?", previous_response_id=7)  # type: ignore[call-overload]
    assert provider.asked == []


async def test_errors_name_paths_of_the_callers_request(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    wrong: Any = [{"role": "user", "content": "?"}, {"role": "nobody", "content": "?"}]
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]\.role"):
        await client.responses.create(model="gpt", input=wrong, previous_response_id=first.id)
