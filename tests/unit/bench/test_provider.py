"""The simulated provider's HTTP face, as the mesh's own client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.test_utils import TestClient, TestServer

from bench.jagged.latency import Cliff, Failures, Mixture, Profile
from bench.jagged.provider import Provider, ProviderSettings
from bench.jagged.tally import read_tally
from tests.waiting import until

QUESTION = {"model": "jagged", "messages": [{"role": "user", "content": "?"}]}


@pytest.fixture
async def clients() -> AsyncIterator[list[TestClient]]:
    opened: list[TestClient] = []
    yield opened
    for client in opened:
        await client.close()


async def serve(clients: list[TestClient], **profile: object) -> TestClient:
    settings = ProviderSettings(profile=Profile(**profile), tokens=3)  # type: ignore[arg-type]
    client = TestClient(TestServer(Provider(settings).application(), handler_cancellation=True))
    clients.append(client)
    await client.start_server()
    return client


async def test_a_streamed_answer_ends_with_usage_and_done(clients: list[TestClient]) -> None:
    client = await serve(clients)
    reply = await client.post(
        "/v1/chat/completions", json={**QUESTION, "stream": True, "stream_options": {"include_usage": True}}
    )
    events = (await reply.text()).strip().split("\n\n")
    assert reply.content_type == "text/event-stream"
    assert [event.count("word ") for event in events] == [1, 1, 1, 0, 0]
    assert '"completion_tokens": 3' in events[3]
    assert events[4] == "data: [DONE]"


async def test_an_answer_may_come_whole(clients: list[TestClient]) -> None:
    reply = await (await serve(clients)).post("/v1/chat/completions", json={**QUESTION, "max_tokens": 2})
    assert (await reply.json())["choices"][0]["message"]["content"] == "word word "


async def test_over_its_limit_it_says_429_and_when_to_come_back(clients: list[TestClient]) -> None:
    client = await serve(clients, cliff=Cliff(per_s=1, retry_after_ms=2_500))
    replies = [await client.post("/v1/chat/completions", json=QUESTION) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 429]
    assert replies[1].headers["retry-after"] == "3"


async def test_a_failed_call_is_503(clients: list[TestClient]) -> None:
    client = await serve(clients, failures=Failures(unavailable_share=1))
    assert (await client.post("/v1/chat/completions", json={**QUESTION, "stream": True})).status == 503


async def test_it_lists_its_model(clients: list[TestClient]) -> None:
    reply = await (await serve(clients)).get("/v1/models")
    assert [model["id"] for model in (await reply.json())["data"]] == ["jagged"]


async def test_a_client_that_leaves_ends_its_answer(clients: list[TestClient]) -> None:
    client = await serve(clients, first=Mixture(60_000))
    address = f"127.0.0.1:{client.port}"
    asking = asyncio.create_task(client.post("/v1/chat/completions", json={**QUESTION, "stream": True}))
    await until(lambda: read_tally([address]), holds=lambda tally: tally.running)
    asking.cancel()
    await until(lambda: read_tally([address]), holds=lambda tally: tally.cancelled)
    assert (await read_tally([address])).running == 0
