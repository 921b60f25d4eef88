"""Stored responses by their ids: owners, responses that are not stored, and limits."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from services.runtime.limits import JSON_VALUES
from tests import recorded_response
from tests.integration.stored_responses.clients import KEYS, USER, client_of
from tests.integration.unchanged.transparent import Transparent
from tests.recorded_response import THOUGHT
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


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
    async with client_of(served, "umbra") as other:
        refusals: list[Any] = []
        for response_id in (first.id, "resp_unknown"):
            with pytest.raises(openai.BadRequestError) as refused:
                await other.responses.create(model="auto", input="?", previous_response_id=response_id)
            assert refused.value.code == "previous_response_not_found"
            assert refused.value.param == "previous_response_id"
            refusals.append(str(refused.value.body).replace(response_id, "X"))
            for gone in (other.responses.retrieve, other.responses.delete, other.responses.input_items.list):
                with pytest.raises(openai.NotFoundError) as missing:
                    await gone(response_id)
                refusals.append(str(missing.value.body).replace(response_id, "X"))
    assert refusals[:4] == refusals[4:]
    assert provider.asked == []


async def test_an_end_user_goes_on_with_responses_of_its_own(served: Transparent, provider: RecordingProvider) -> None:
    async with (
        client_of(served, "crowd", **{"x-hedgerow-end-user": "anna"}) as anna,
        client_of(served, "crowd") as unnamed,
    ):
        first = await anna.responses.create(model="gpt", input="?")
        assert (await anna.responses.retrieve(first.id)).id == first.id
        own = await unnamed.responses.create(model="gpt", input="?", user="anna", previous_response_id=first.id)
        assert own.output_text == "Tokyo.", "the same end user, named by another field"
        for user in ("bert", None):
            named: dict[str, Any] = {"user": user} if user else {}
            with pytest.raises(openai.BadRequestError, match=f"'{first.id}' not found"):
                await unnamed.responses.create(model="gpt", input="?", previous_response_id=first.id, **named)
        with pytest.raises(openai.NotFoundError):
            await unnamed.responses.delete(first.id)
        stored = await unnamed.responses.create(model="gpt", input="?", user="an account", safety_identifier="anna")
        assert (await anna.responses.retrieve(stored.id)).id == stored.id, "the end user in OpenAI's newer field"


async def test_a_response_of_an_unnamed_end_user_is_not_stored(
    served: Transparent, provider: RecordingProvider
) -> None:
    async with client_of(served, "crowd") as unnamed:
        answer: Any = await unnamed.responses.create(model="gpt", input="?", store=True)
        assert (answer.output_text, answer.store) == ("Tokyo.", False)
        with pytest.raises(openai.NotFoundError):
            await unnamed.responses.retrieve(answer.id)
        with pytest.raises(openai.NotFoundError):
            await unnamed.responses.delete(answer.id)
        with pytest.raises(openai.BadRequestError, match=f"'{answer.id}' not found"):
            await unnamed.responses.create(model="gpt", input="?", previous_response_id=answer.id)


async def test_a_failed_answer_is_not_stored(client: openai.AsyncOpenAI, provider: RecordingProvider) -> None:
    events = [*recorded_response.begun(), *recorded_response.thought()]
    provider.response = recorded_response.numbered(events)
    stream = await client.responses.create(model="alone", input="?", stream=True)
    first, *_, last = [event async for event in stream]
    assert (first.type, last.type) == ("response.created", "response.failed")
    assert first.response.id == last.response.id
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(last.response.id)


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

    first: Any = await client.responses.create(model="resp", input=of(JSON_VALUES // 2))
    assert first.store is True
    with pytest.raises(openai.BadRequestError, match=f"previous_response_id: .* at most {JSON_VALUES} values"):
        await client.responses.create(model="resp", input=of(JSON_VALUES // 2), previous_response_id=first.id)
    full: Any = await client.responses.create(model="resp", input=of(JSON_VALUES - 40))
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
