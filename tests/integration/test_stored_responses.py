"""Responses that a gateway stores: OpenAI's client goes on with one by its id, with each kind of model behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from services.gateway.admission.intake import JSON_VALUES
from tests import recorded_response
from tests.integration.unchanged.transparent import Transparent, transparent_gateway
from tests.keys import digest
from tests.recorded_response import CALL, RESPONSE, THOUGHT
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
KEYS = {"acme": "secret", "umbra": "test", "crowd": "many"}
TENANTS: dict[str, dict[str, Any]] = {name: {"keys": [digest(key)]} for name, key in KEYS.items()}
TENANTS["crowd"]["hits"] = {"scope": "user"}
USER = {"type": "message", "role": "user", "content": "Capital of Japan?"}
MODELS = ["gpt", "claude", "resp", "alone"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Transparent]:
    folder = tmp_path_factory.mktemp("logs")
    async with transparent_gateway(folder, responses__ttl_ms="600000", tenants=json.dumps(TENANTS)) as running:
        yield running


@pytest.fixture
def provider(served: Transparent) -> RecordingProvider:
    served.provider.reset()
    return served.provider


def _client(served: Transparent, tenant: str, **headers: str) -> openai.AsyncOpenAI:
    """OpenAI's own, which refuses what is not as its types have it."""
    return openai.AsyncOpenAI(
        base_url=f"{served.url}/v1",
        api_key=KEYS[tenant],
        max_retries=0,
        timeout=20,
        default_headers=headers,
        _strict_response_validation=True,
    )


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: Transparent) -> AsyncIterator[openai.AsyncOpenAI]:
    async with _client(served, "acme") as made:
        yield made


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
    assert recorded_response.ID != first.id != second.id != recorded_response.ID, "no caller guesses the gateway's"
    third = await ask("Thanks.", previous_response_id=second.id, store=False)
    assert (third.store, third.previous_response_id) == (False, second.id)

    body = provider.asked[-1].body
    assert "pirate" not in json.dumps(body)
    said = [each for each in body.get("messages") or body["input"] if each.get("type") != "reasoning"]
    assert [each["role"] for each in said] == ["user", "assistant"] * 2 + ["user"]
    assert [_text(each) for each in said] == ["Capital of Japan?", "Tokyo.", "And its river?", "Tokyo.", "Thanks."]
    assert "previous_response_id" not in body
    assert body.get("store", False) is False
    assert (await client.responses.retrieve(second.id)).output_text == "Tokyo."
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(third.id)


def _text(said: dict[str, Any]) -> str:
    content = said["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content if "text" in part)


async def test_thoughts_calls_and_results_go_back_unchanged(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    provider.response = _called()
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    first = await client.responses.create(model="resp", input="Weather in Tokyo?", tools=[tool])
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    provider.response = RESPONSE
    result: Any = {"type": "function_call_output", "call_id": "call_1", "output": "21"}
    second = await client.responses.create(
        model="resp", input=[result], tools=[tool], previous_response_id=first.id, stream=True
    )
    events = [event async for event in second]
    told = [event.response for event in events if event.type in ("response.created", "response.completed")]
    assert [(each.previous_response_id, each.store) for each in told] == [(first.id, True)] * 2
    question = {"type": "message", "role": "user", "content": "Weather in Tokyo?"}
    assert provider.asked[-1].body["input"] == [question, THOUGHT, CALL, result]
    assert provider.asked[-1].body["store"] is False

    third = await client.responses.create(model="gpt", input="Sure?", tools=[tool], previous_response_id=told[1].id)
    assert third.output_text == "Tokyo."
    roles = [each["role"] for each in provider.asked[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    items = [item async for item in client.responses.input_items.list(third.id, order="asc", limit=2)]
    assert [item.type for item in items] == [
        *("message", "reasoning", "function_call", "function_call_output"),
        *(each["type"] for each in RESPONSE[-1]["response"]["output"]),
        "message",
    ]


async def test_a_thought_that_only_its_provider_could_open_stays_behind_with_the_ids_of_its_turn(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    sealed = {name: given for name, given in THOUGHT.items() if name != "encrypted_content"}
    events = [*recorded_response.begun(), *recorded_response.called(1), recorded_response.ended([sealed, CALL])]
    provider.response = recorded_response.numbered(events)
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    first = await client.responses.create(model="resp", input=[USER], tools=[tool])
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    provider.response = RESPONSE
    result: Any = {"type": "function_call_output", "call_id": "call_1", "output": "21"}
    await client.responses.create(model="resp", input=[result], tools=[tool], previous_response_id=first.id)
    call = {name: given for name, given in CALL.items() if name != "id"}
    assert provider.asked[-1].body["input"] == [USER, call, result]


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
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    first = await client.responses.create(model="gpt", input="Weather in Tokyo?", tools=[tool])
    (call,) = first.output
    assert call.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "21"}
    second = await client.responses.create(model="gpt", input=[result], tools=[tool], previous_response_id=first.id)
    assert second.output_text == "Tokyo."
    question, called, answered = provider.asked[-1].body["messages"]
    assert (question["content"], called["tool_calls"][0]["id"]) == ("Weather in Tokyo?", "call_9")
    assert (answered["tool_call_id"], answered["content"]) == ("call_9", "21")


async def test_a_stored_response_is_retrieved_as_it_was_answered_and_removed(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input=[USER], metadata={"a": "b"}, user="anna")
    again = await client.responses.retrieve(first.id)
    assert again == first
    listed = await client.responses.input_items.list(first.id)
    (item,) = listed.data
    assert item.to_dict() == {
        "id": f"msg_{first.id.removeprefix('resp_')}_0",
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "Capital of Japan?"}],
    }
    second = await client.responses.create(model="gpt", input="?", previous_response_id=first.id)
    await client.responses.delete(first.id)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match=f"Response with id '{first.id}' not found"):
            await gone(first.id)
    third = await client.responses.create(model="gpt", input="?", previous_response_id=second.id)
    assert third.output_text == "Tokyo.", "a response has its own copy of the turns before it"
    assert [each["content"] for each in provider.asked[-1].body["messages"][::2]] == ["Capital of Japan?", "?", "?"]


@pytest.mark.parametrize("path", ["", "/input_items"])
async def test_an_answer_about_a_response_is_an_object_of_openais(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider, path: str
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    headers = {"authorization": f"Bearer {KEYS['acme']}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=30) as http:
        streamed = await http.get(f"/v1/responses/{first.id}{path}", params={"stream": "true", "limit": "0"})
        assert (streamed.status_code, streamed.json()["error"]["param"]) == (400, "limit" if path else "stream")
        removed = await http.delete(f"/v1/responses/{first.id}")
    assert removed.json() == {"id": first.id, "object": "response", "deleted": True}


async def test_an_unknown_response_and_another_tenants_are_one_error(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    provider.asked.clear()
    async with _client(served, "umbra") as other:
        told: list[Any] = []
        for response_id in (first.id, "resp_unknown"):
            with pytest.raises(openai.BadRequestError) as refused:
                await other.responses.create(model="auto", input="?", previous_response_id=response_id)
            assert refused.value.code == "previous_response_not_found"
            assert refused.value.param == "previous_response_id"
            told.append(str(refused.value.body).replace(response_id, "X"))
            for gone in (other.responses.retrieve, other.responses.delete, other.responses.input_items.list):
                with pytest.raises(openai.NotFoundError) as missing:
                    await gone(response_id)
                told.append(str(missing.value.body).replace(response_id, "X"))
    assert told[:4] == told[4:]
    assert provider.asked == []


async def test_an_end_user_goes_on_with_responses_of_its_own(served: Transparent, provider: RecordingProvider) -> None:
    async with (
        _client(served, "crowd", **{"x-hedgerow-end-user": "anna"}) as anna,
        _client(served, "crowd") as nobody,
    ):
        first = await anna.responses.create(model="gpt", input="?")
        assert (await anna.responses.retrieve(first.id)).id == first.id
        own = await nobody.responses.create(model="gpt", input="?", user="anna", previous_response_id=first.id)
        assert own.output_text == "Tokyo.", "the same name, by another field"
        for user in ("bert", None):
            named: dict[str, Any] = {"user": user} if user else {}
            with pytest.raises(openai.BadRequestError, match=f"'{first.id}' not found"):
                await nobody.responses.create(model="gpt", input="?", previous_response_id=first.id, **named)
        with pytest.raises(openai.NotFoundError):
            await nobody.responses.delete(first.id)
        named = await nobody.responses.create(model="gpt", input="?", user="an account", safety_identifier="anna")
        assert (await anna.responses.retrieve(named.id)).id == named.id, "the name that OpenAI has for it now"


def _reference(item: Any) -> Any:
    return {"type": "item_reference", "id": item.id}


@pytest.mark.parametrize("model", ["gpt", "claude"])
async def test_a_reference_stands_for_an_item_of_a_stored_response(
    client: openai.AsyncOpenAI, provider: RecordingProvider, model: str
) -> None:
    first = await client.responses.create(model=model, input="Capital of Japan?")
    items: Any = [USER, *map(_reference, first.output), {"role": "user", "content": "And its river?"}]
    second = await client.responses.create(model=model, input=items, store=False, max_output_tokens=9)
    assert second.output_text == "Tokyo."
    body = provider.asked[-1].body
    assert [_text(each) for each in body.get("messages") or body["input"]] == [
        "Capital of Japan?",
        "Tokyo.",
        "And its river?",
    ]
    third = await client.responses.create(model=model, input=items)
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{first.output[0].id}' not found"):
        await client.responses.create(model=model, input=items)
    fourth = await client.responses.create(model=model, input="Thanks.", previous_response_id=third.id)
    assert fourth.output_text == "Tokyo.", "a response has its own copy of the items that it referred to"


async def test_calls_are_referred_to_and_unencrypted_thoughts_are_left_out(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    thought, call = {**THOUGHT, "id": f"rs_{'1' * 48}", "encrypted_content": None}, {**CALL, "id": f"fc_{'1' * 48}"}
    provider.response = recorded_response.numbered(
        [*recorded_response.begun(), *recorded_response.called(0, call), recorded_response.ended([thought, call])]
    )
    tool: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
    first = await client.responses.create(model="resp", input="Weather in Tokyo?", tools=[tool])
    provider.response = RESPONSE
    result = {"type": "function_call_output", "call_id": "call_1", "output": "21"}
    turn: Any = [USER, *map(_reference, first.output), result]
    assert (await client.responses.create(model="resp", input=turn, tools=[tool])).output_text == "Tokyo."
    sent = provider.asked[-1].body["input"]
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]
    assert "id" not in sent[1]


async def test_an_unknown_item_and_another_callers_are_one_error(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    provider.asked.clear()
    known, unknown = _reference(first.output[0]), {"type": "item_reference", "id": "msg_unknown"}
    message: Any = USER
    nameless: Any = {"type": "item_reference"}
    async with _client(served, "umbra") as other, _client(served, "crowd") as nobody:
        for caller in (other, nobody):
            told: list[Any] = []
            for reference in (known, unknown):
                with pytest.raises(openai.NotFoundError) as refused:
                    await caller.responses.create(model="gpt", input=[reference, message])
                assert (refused.value.param, refused.value.code) == ("input", "item_not_found")
                told.append(str(refused.value.body).replace(reference["id"], "X"))
            assert told[0] == told[1]
    with pytest.raises(openai.BadRequestError, match=r"input\[0\]\.id"):
        await client.responses.create(model="gpt", input=[nameless, message])
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="gpt", input=[_reference(first), message])
    with pytest.raises(openai.BadRequestError, match="Previous response"):
        await client.responses.create(model="gpt", input="?", previous_response_id=known["id"])
    assert provider.asked == []


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_retry_after_its_earlier_response_was_removed_gets_the_same_answer(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider, streamed: bool
) -> None:
    first = await client.responses.create(model="gpt", input="Capital of Japan?")
    turn: Any = [*map(_reference, first.output), {"role": "user", "content": "?"}]
    keyed = [{"idempotency-key": f"{each} {streamed}"} for each in ("turn", "reference")]
    asked: list[dict[str, Any]] = [
        {"model": "gpt", "input": "And its river?", "previous_response_id": first.id, "extra_headers": keyed[0]},
        {"model": "gpt", "input": turn, "extra_headers": keyed[1]},
    ]

    async def ask(client: openai.AsyncOpenAI, request: dict[str, Any]) -> Any:
        if not streamed:
            return await client.responses.create(**request)
        events = [event async for event in await client.responses.create(**request, stream=True)]
        return events[-1].response

    answers = [await ask(client, each) for each in asked]
    await client.responses.delete(first.id)
    provider.asked.clear()
    for request, answer in zip(asked, answers, strict=True):
        again = await ask(client, request)
        assert (again.id, again.output) == (answer.id, answer.output)
        with pytest.raises(openai.APIStatusError, match="not found"):
            await ask(client, {**request, "extra_headers": {"idempotency-key": "another"}})
        with pytest.raises(openai.APIStatusError, match="not found"):
            await ask(client, {**request, "max_output_tokens": 5})
        async with _client(served, "umbra") as other:
            with pytest.raises(openai.APIStatusError, match="not found"):
                await ask(other, request)
    assert provider.asked == []
    last = await client.responses.create(model="gpt", input="?", previous_response_id=answers[0].id)
    assert last.output_text == "Tokyo."
    said = [_text(each) for each in provider.asked[-1].body["messages"]]
    assert said == ["Capital of Japan?", "Tokyo.", "And its river?", "Tokyo.", "?"]


async def test_a_response_of_an_unnamed_end_user_is_not_stored(
    served: Transparent, provider: RecordingProvider
) -> None:
    async with _client(served, "crowd") as nobody:
        answer = await nobody.responses.create(model="gpt", input="?", store=True)
        assert (answer.output_text, answer.store) == ("Tokyo.", False)
        with pytest.raises(openai.NotFoundError):
            await nobody.responses.retrieve(answer.id)
        with pytest.raises(openai.NotFoundError):
            await nobody.responses.delete(answer.id)
        with pytest.raises(openai.BadRequestError, match=f"'{answer.id}' not found"):
            await nobody.responses.create(model="gpt", input="?", previous_response_id=answer.id)


async def test_what_a_provider_goes_on_with_is_left_to_it(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    with pytest.raises(openai.PermissionDeniedError, match="conversation"):
        await client.responses.create(model="resp", input="?", conversation="conv_1")
    with pytest.raises(openai.BadRequestError, match="store: true or false"):
        await client.responses.create(model="resp", input="?", store="yes")  # type: ignore[call-overload]
    with pytest.raises(openai.BadRequestError, match="previous_response_id: a string"):
        await client.responses.create(model="resp", input="?", previous_response_id=7)  # type: ignore[call-overload]
    assert provider.asked == []


async def test_a_failed_answer_is_not_stored(client: openai.AsyncOpenAI, provider: RecordingProvider) -> None:
    events = [*recorded_response.begun(), *recorded_response.thought()]
    provider.response = recorded_response.numbered(events)
    stream = await client.responses.create(model="alone", input="?", stream=True)
    first, *_, last = [event async for event in stream]
    assert (first.type, last.type) == ("response.created", "response.failed")
    assert first.response.id == last.response.id
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(last.response.id)


async def test_errors_name_places_as_the_caller_has_them(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    wrong: Any = [{"role": "user", "content": "?"}, {"role": "nobody", "content": "?"}]
    with pytest.raises(openai.BadRequestError, match=r"input\[1\]\.role"):
        await client.responses.create(model="gpt", input=wrong, previous_response_id=first.id)


async def test_a_conversation_with_its_earlier_turns_has_a_limit(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    large: Any = [{**THOUGHT, "encrypted_content": "A" * 15_000_000}, USER]
    first = await client.responses.create(model="resp", input=large)
    with pytest.raises(openai.BadRequestError, match="previous_response_id: a conversation of at most 27262976 bytes"):
        await client.responses.create(model="resp", input=large, previous_response_id=first.id)


async def test_the_values_of_a_conversation_have_a_limit_too(
    client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    def of(values: int) -> Any:
        lists = [[0] * 5_000] * (values // 5_001) + [[0] * (values % 5_001)]
        return [{**THOUGHT, "encrypted_content": lists}, USER]

    first = await client.responses.create(model="resp", input=of(JSON_VALUES // 2))
    assert first.store is True
    with pytest.raises(openai.BadRequestError, match=f"previous_response_id: .* at most {JSON_VALUES} values"):
        await client.responses.create(model="resp", input=of(JSON_VALUES // 2), previous_response_id=first.id)
    full = await client.responses.create(model="resp", input=of(JSON_VALUES - 40))
    assert full.store is False, "with its answer it is too large for a next turn"
    assert full.model_extra
    assert "response:unstored" in full.model_extra["hedgerow"]["degraded"]


async def test_a_route_that_is_not_offered_is_no_response(served: Transparent) -> None:
    headers = {"authorization": f"Bearer {KEYS['acme']}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=30) as http:
        for path in ("compact", "input_tokens", "resp_1/cancel"):
            reply = await http.post(f"/v1/responses/{path}", json={})
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_url")
        put = await http.put("/v1/responses/resp_1", json={})
        assert (put.status_code, {*put.headers["allow"].split(", ")}) == (405, {"GET", "HEAD", "DELETE"})
