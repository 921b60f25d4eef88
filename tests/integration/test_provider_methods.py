"""OpenAI's own client asks a provider's models for embeddings and moderations, through the real gateway and llm
services: the provider gets the client's request, and the client the provider's answer."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from launcher.processes import free_port
from tests.conftest import starting
from tests.recording_provider import RecordingProvider, recording_provider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
VECTOR = (0.25, -1.5)
PACKED = base64.b64encode(struct.pack("<2f", *VECTOR)).decode()
USAGE = {"prompt_tokens": 6, "total_tokens": 6}
FLAGGED = {"id": "modr-1", "model": "omni", "results": [{"flagged": True, "categories": {"violence": True}}]}
RANKED = {"id": "r", "model": "bge", "results": [{"index": 1, "relevance_score": 0.5}], "meta": {"warnings": ["w"]}}


def says(path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The provider's answer to each method; vectors in the form that the request wants."""
    if path == "/v1/embeddings":
        vector = PACKED if body.get("encoding_format") == "base64" else list(VECTOR)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, _ in enumerate(texts)]
        return {"object": "list", "data": data, "model": "bge-2026", "usage": USAGE}
    return FLAGGED if path == "/v1/moderations" else RANKED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[RecordingProvider, str]]:
    """The provider, and the URL of a gateway before a model that chats and one that does not."""
    port = free_port()
    async with recording_provider() as provider, starting(tmp_path_factory.mktemp("logs")) as start:
        own = {"engine": "openai", "openai__base_url": provider.url, "openai__api_key": "the operator's"}
        chats = await start("llm", "gpt", openai__model="gpt-x", **own)
        apis = json.dumps(["embeddings", "rerank", "moderations"])
        embeds = await start("llm", "bge", openai__model="bge-m3", openai__apis=apis, **own)
        await start(
            "gateway",
            llm_addresses=json.dumps({"bge": embeds.spec.address, "gpt": chats.spec.address}),
            serves=json.dumps({"bge": json.loads(apis)}),
            cache_address="",
            router_address="",
            http_address=f"127.0.0.1:{port}",
        )
        yield provider, f"http://127.0.0.1:{port}/v1"


@pytest.fixture
def provider(served: tuple[RecordingProvider, str]) -> RecordingProvider:
    served[0].reset()
    served[0].says = says
    return served[0]


@pytest_asyncio.fixture(loop_scope="module")
async def client(served: tuple[RecordingProvider, str]) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=served[1], api_key="unused", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("given", ["Hello.", ["Hello.", "Grüße"], [1, 2], [[1, 2], [3]]])
async def test_embeddings(provider: RecordingProvider, client: openai.AsyncOpenAI, given: Any) -> None:
    made = await client.embeddings.create(model="bge", input=given, dimensions=2, user="u-1")
    assert made.data[0].embedding == list(VECTOR)
    assert (made.model, made.usage.prompt_tokens) == ("bge-2026", 6)
    (asked,) = provider.asked
    assert asked.body == {
        **{"model": "bge-m3", "input": given, "dimensions": 2, "user": "u-1"},
        "encoding_format": "base64",  # the client's default
    }
    assert asked.headers["authorization"] == "Bearer the operator's"
    plain = await client.embeddings.create(model="bge", input=given, encoding_format="float")
    assert plain.data[0].embedding == list(VECTOR)


async def test_moderations_and_rerank(
    provider: RecordingProvider, client: openai.AsyncOpenAI, served: tuple[RecordingProvider, str]
) -> None:
    assert (await client.moderations.create(model="bge", input="Hello.")).results[0].flagged
    body = {"model": "bge", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "truncate": "END"}
    async with httpx.AsyncClient(timeout=30) as http:
        ranked = await http.post(f"{served[1]}/rerank", json=body)
    assert ranked.json() == RANKED
    assert [(each.path, each.body["model"]) for each in provider.asked] == [
        ("/v1/moderations", "bge-m3"),
        ("/v1/rerank", "bge-m3"),
    ]
    assert provider.asked[1].body == {**body, "model": "bge-m3"}


async def test_each_name_is_known_where_its_model_serves(
    provider: RecordingProvider, client: openai.AsyncOpenAI
) -> None:
    listed = {model.id: model.model_dump().get("hedgerow") for model in (await client.models.list()).data}
    assert listed["bge"] == {"serves": ["embeddings", "rerank", "moderations"]}
    assert listed["gpt"] is None
    with pytest.raises(openai.NotFoundError, match="one of bge, auto, default, got gpt"):
        await client.embeddings.create(model="gpt", input="Hello.")
    message: Any = {"role": "user", "content": "Hello."}
    with pytest.raises(openai.NotFoundError, match="one of gpt, auto, fast, balanced, quality, got bge"):
        await client.chat.completions.create(model="bge", messages=[message])
    assert provider.asked == []
    provider.says = None
    said = await client.chat.completions.create(model="auto", messages=[message])
    assert (said.model, said.choices[0].message.content) == ("gpt-x-2026-01-01", "Tokyo.")


@pytest.mark.parametrize("deployment", [None, "gpt"])
async def test_azures_client_names_the_model_in_the_path(
    provider: RecordingProvider, served: tuple[RecordingProvider, str], deployment: str | None
) -> None:
    provider.says = None
    azures = {"azure_endpoint": served[1].removesuffix("/v1"), "api_version": "2024-10-21", "api_key": "unused"}
    named: Any = {**azures, "azure_deployment": deployment} if deployment else azures
    message: Any = {"role": "user", "content": "Hello."}
    async with openai.AsyncAzureOpenAI(**named, max_retries=0) as client:
        model = "any" if deployment else "gpt"
        said = await client.chat.completions.create(model=model, messages=[message])
        assert said.choices[0].message.content == "Tokyo."
        stream = await client.chat.completions.create(model=model, messages=[message], stream=True)
        deltas = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(deltas) == "Tokyo."
        assert {asked.body["model"] for asked in provider.asked} == {"gpt-x"}
    async with openai.AsyncAzureOpenAI(**azures, max_retries=0) as client:
        provider.says = says
        assert (await client.embeddings.create(model="bge", input="Hello.")).data[0].embedding == list(VECTOR)
        assert "bge" in {model.id async for model in client.models.list()}
        with pytest.raises(openai.NotFoundError, match=r"one of gpt, auto, .*, got absent"):
            await client.chat.completions.create(model="absent", messages=[message])
