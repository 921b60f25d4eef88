"""Items of an input that refer to stored responses, and retries after such a response was removed."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.integration.stored_responses.clients import USER, client_of, reference_to, text_in
from tests.integration.unchanged.transparent import Transparent
from tests.recording_provider import RecordingProvider

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]


@pytest.mark.parametrize("model", ["gpt", "claude"])
async def test_a_reference_stands_for_an_item_of_a_stored_response(
    client: openai.AsyncOpenAI, provider: RecordingProvider, model: str
) -> None:
    first = await client.responses.create(model=model, input="Capital of Japan?")
    items: Any = [USER, *map(reference_to, first.output), {"role": "user", "content": "And its river?"}]
    second = await client.responses.create(model=model, input=items, store=False, max_output_tokens=9)
    assert second.output_text == "Tokyo."
    body = provider.asked[-1].body
    assert [text_in(each) for each in body.get("messages") or body["input"]] == [
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


async def test_an_unknown_item_and_another_callers_are_one_error(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider
) -> None:
    first = await client.responses.create(model="gpt", input="?")
    provider.asked.clear()
    known, unknown = reference_to(first.output[0]), {"type": "item_reference", "id": "msg_unknown"}
    message: Any = USER
    nameless: Any = {"type": "item_reference"}
    async with client_of(served, "umbra") as other, client_of(served, "crowd") as unnamed:
        for caller in (other, unnamed):
            refusals: list[Any] = []
            for reference in (known, unknown):
                with pytest.raises(openai.NotFoundError) as refused:
                    await caller.responses.create(model="gpt", input=[reference, message])
                assert (refused.value.param, refused.value.code) == ("input", "item_not_found")
                refusals.append(str(refused.value.body).replace(reference["id"], "X"))
            assert refusals[0] == refusals[1]
    with pytest.raises(openai.BadRequestError, match=r"input\[0\]\.id"):
        await client.responses.create(model="gpt", input=[nameless, message])
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="gpt", input=[reference_to(first), message])
    with pytest.raises(openai.BadRequestError, match="Previous response"):
        await client.responses.create(model="gpt", input="?", previous_response_id=known["id"])
    assert provider.asked == []


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_retry_after_its_earlier_response_was_removed_gets_the_same_answer(
    served: Transparent, client: openai.AsyncOpenAI, provider: RecordingProvider, streamed: bool
) -> None:
    first = await client.responses.create(model="gpt", input="Capital of Japan?")
    turn: Any = [*map(reference_to, first.output), {"role": "user", "content": "?"}]
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
        async with client_of(served, "umbra") as other:
            with pytest.raises(openai.APIStatusError, match="not found"):
                await ask(other, request)
    assert provider.asked == []
    last = await client.responses.create(model="gpt", input="?", previous_response_id=answers[0].id)
    assert last.output_text == "Tokyo."
    said = [text_in(each) for each in provider.asked[-1].body["messages"]]
    assert said == ["Capital of Japan?", "Tokyo.", "And its river?", "Tokyo.", "?"]
