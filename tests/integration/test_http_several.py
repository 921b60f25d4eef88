"""Several answers to one question (`n`): each asked separately where no provider gives them to one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from launcher.processes import free_port
from services.runtime.rpc.boundary import DOMAIN
from tests.conftest import Start
from tests.integration.http_gateway import QUESTION, HttpGateway, start_http_gateway
from tests.integration.scripted import Refusal
from tests.integration.scripted_llm import ScriptedLlm, end, scripted_llm, words
from tests.keys import digest

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NO_SUCH_FIELD = Refusal(
    "INVALID_ARGUMENT", "n: no such field of model m, got 3", "INVALID_INPUT", {"field": "n"}, domain=DOMAIN
)


class Separate(ScriptedLlm):
    """A model that refuses `n`, as all do that are behind no server of chat completions, and counts what it is
    asked."""

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if "n" in request.original.untranslated:
            await NO_SUCH_FIELD.send(context)
        number = len(self.requests)
        self.requests.append(request)
        yield from_text(f"a{number}")
        for each in (*words("!"), end()):
            yield each


def from_text(text: str) -> Any:
    return words(text)[0]


@pytest.fixture
async def llm() -> AsyncIterator[ScriptedLlm]:
    async with scripted_llm(model=Separate()) as scripted:
        yield scripted


async def test_openais_client_has_as_many_choices_as_it_asks_for(openai_: AsyncOpenAI, llm: Separate) -> None:
    answer = await openai_.chat.completions.create(**QUESTION, n=3, seed=7)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"a0!", "a1!", "a2!"}
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (21, 6)
    report = answer.model_extra["hedgerow"]
    assert len(report["choices"]) == 3
    assert {each["cache"]["reason"] for each in report["choices"]} == {"request"}
    assert sorted(request.sampling.seed for request in llm.requests) == [7, 8, 9]
    assert all(b'"n"' not in request.original.body for request in llm.requests)


async def test_choices_stream_by_their_index_and_end_once(openai_: AsyncOpenAI, http: httpx.AsyncClient) -> None:
    stream = await openai_.chat.completions.create(**QUESTION, n=3, stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert len({chunk.id for chunk in chunks}) == 1
    texts, finishes = dict[int, str](), dict[int, str]()
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
        if choice.finish_reason:
            finishes[choice.index] = choice.finish_reason
    assert {*texts.values()} == {"a0!", "a1!", "a2!"}
    assert finishes == {0: "stop", 1: "stop", 2: "stop"}
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens == 6
    assert len(chunks[-1].model_extra["hedgerow"]["choices"]) == 3
    served = [line for line in (await http.get("/metrics")).text.splitlines() if "http_seconds_count" in line]
    assert any(f'route="{CHATS}",status="200"' in line for line in served), served


async def test_a_stream_without_usage_has_the_account_beside_the_last_finish(http: httpx.AsyncClient) -> None:
    reply = await http.post(CHATS, json={**QUESTION, "n": 2, "stream": True})
    *events, done, _ = reply.text.split("\n\n")
    assert done == "data: [DONE]"
    parsed = [json.loads(event.removeprefix("data: ")) for event in events]
    assert ["hedgerow" in each for each in parsed].count(True) == 1
    assert "hedgerow" in parsed[-1]
    assert parsed[-1]["choices"][0]["finish_reason"] == "stop"


async def test_completions_have_several_choices_as_well(openai_: AsyncOpenAI, http: httpx.AsyncClient) -> None:
    answer = await openai_.completions.create(model="m", prompt="Hello?", n=2)
    assert {(choice.index, choice.text) for choice in answer.choices} in (
        {(0, "a0!"), (1, "a1!")},
        {(0, "a1!"), (1, "a0!")},
    )
    reply = await http.post(COMPLETIONS, json={"model": "m", "prompt": "Hello?", "n": 2, "stream": True})
    *events, done, _ = reply.text.split("\n\n")
    assert done == "data: [DONE]"
    parsed = [json.loads(event.removeprefix("data: ")) for event in events]
    assert {each["choices"][0]["index"] for each in parsed} == {0, 1}
    assert len(parsed[-1]["hedgerow"]["choices"]) == 2


@pytest.fixture
async def limited(start: Start, llm: ScriptedLlm) -> HttpGateway:
    """A gateway with a tenant of few requests at once, and one without the permission."""
    tenants = {
        "acme": {"keys": [digest("secret")], "concurrency": 2, "provider": ["n"]},
        "poor": {"keys": [digest("test")]},
    }
    return await start_http_gateway(start, llm, tenants=json.dumps(tenants))


async def test_choices_count_against_the_tenants_concurrency_and_need_its_permission(limited: HttpGateway) -> None:
    async with httpx.AsyncClient(base_url=limited.url, timeout=20) as http:
        acme, poor = ({"x-api-key": key} for key in ("secret", "test"))
        for path, body in ((CHATS, QUESTION), (COMPLETIONS, {"model": "m", "prompt": "Hello?"})):
            refused = await http.post(path, json={**body, "n": 3}, headers=acme)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "n")
            assert "at most 2, the tenant's `concurrency`" in refused.json()["error"]["message"]
            assert len((await http.post(path, json={**body, "n": 2}, headers=acme)).json()["choices"]) == 2
            denied = await http.post(path, json={**body, "n": 2}, headers=poor)
            assert (denied.status_code, denied.json()["error"]["code"]) == (403, "field_denied")
        many = await asyncio.gather(*(http.post(CHATS, json={**QUESTION, "n": 2}, headers=acme) for _ in range(3)))
        assert {reply.status_code for reply in many} <= {200, 429}


async def test_a_repeat_with_its_key_has_the_same_choices(openai_: AsyncOpenAI, llm: Separate) -> None:
    keyed: dict[str, Any] = {"extra_headers": {"idempotency-key": "once"}}
    first, again = [await openai_.chat.completions.create(**QUESTION, n=3, **keyed) for _ in range(2)]
    assert [each.message.content for each in first.choices] == [each.message.content for each in again.choices]
    assert len(llm.requests) == 3
    completion: dict[str, Any] = {"model": "m", "prompt": "Hello?", "extra_headers": {"idempotency-key": "completed"}}
    assert len((await openai_.completions.create(**completion, n=3)).choices) == 3
    assert len(llm.requests) == 6
    for count in (1, 2):
        with pytest.raises(openai.BadRequestError, match="idempotency_key: a different key for each request"):
            await openai_.chat.completions.create(**QUESTION, n=count, **keyed)
        with pytest.raises(openai.BadRequestError, match="idempotency_key: a different key for each request"):
            await openai_.completions.create(**completion, n=count)
    streamed: dict[str, Any] = {**QUESTION, "n": 2, "stream": True, "extra_headers": {"idempotency-key": "streamed"}}
    texts = []
    for _ in range(2):
        said = {0: "", 1: ""}
        async for chunk in await openai_.chat.completions.create(**streamed):
            for choice in chunk.choices:
                said[choice.index] += choice.delta.content or ""
        texts.append(said)
    assert texts[0] == texts[1]
    assert len(llm.requests) == 8


async def test_several_answers_come_from_the_next_model_if_the_first_is_down(start: Start, llm: Separate) -> None:
    addresses = json.dumps({"gone": f"127.0.0.1:{free_port()}", "m": llm.target})
    gateway = await start_http_gateway(start, llm, llm_addresses=addresses)
    async with AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        answer = await client.chat.completions.create(**{**QUESTION, "model": "auto"}, n=2)
    assert {choice.message.content for choice in answer.choices} == {"a0!", "a1!"}
