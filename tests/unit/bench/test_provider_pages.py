"""The simulated provider's answers in one piece, to OpenAI's client and our transport."""

from __future__ import annotations

import json

import pytest
from openai import AsyncOpenAI, NotFoundError

from bench.provider.pages import MODEL
from bench.provider.server import SimulatedProvider
from services.llm.providers.transport.http1 import Http1
from services.llm.providers.transport.wire import Options, Wire

OPTIONS = Options(max_connections=1, connect_s=5, read_s=5, idle_s=5)


async def test_a_client_of_openai_lists_models_and_embeds() -> None:
    async with (
        SimulatedProvider() as provider,
        AsyncOpenAI(base_url=provider.url, api_key="none", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == [MODEL]
        same = await client.embeddings.create(model=MODEL, input=["one", "two", "one"], encoding_format="float")
        vectors = [each.embedding for each in same.data]
        assert vectors[0] == vectors[2] != vectors[1]
        with pytest.raises(NotFoundError, match="/v1/moderations is not served"):
            await client.moderations.create(input="one")


async def posted(wire: Wire, url: str, body: object) -> tuple[int, dict[str, object]]:
    reply = await wire.send("POST", url, {"content-type": "application/json"}, json.dumps(body).encode())
    content = b""
    while piece := await reply.read():
        content += piece
    return reply.status, json.loads(content)


async def test_documents_are_ranked_by_the_words_they_share_with_the_query() -> None:
    async with SimulatedProvider() as provider:
        wire = Http1(provider.url, OPTIONS)
        body = {"query": "green tea", "documents": ["a stone", {"text": "tea"}, "Green tea"], "top_n": 2}
        status, reply = await posted(wire, f"{provider.url}/rerank", body)
        assert status == 200
        assert reply["results"] == [{"index": 2, "relevance_score": 1.0}, {"index": 1, "relevance_score": 0.5}]
        assert (await posted(wire, f"{provider.url}/rerank", {}))[0] == 400
        assert (await posted(wire, f"{provider.url}/chat", {}))[0] == 404
        await wire.close()
