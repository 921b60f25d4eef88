"""Documents in the order of how near they are to a query, by embeddings that a script has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.gateway.http.endpoints import embedding
from services.gateway.http.endpoints.embedding import Embedding
from services.runtime.aside import LARGE_BYTES, MEDIUM_BYTES
from services.runtime.errors import InvalidInput, NotSupported, Unavailable
from tests.unit.gateway.answer.scene import EVERYTHING
from tests.unit.gateway.http.endpoints.calling import SETTINGS, Bills, EmbeddingCache, admission, replied

pytestmark = pytest.mark.paused


async def reranked(cache: EmbeddingCache, bills: Bills | None = None, **body: Any) -> tuple[int, Any]:
    return await replied(Embedding(admission(bills or Bills()), cache).rerank, **body)


async def test_the_nearest_come_first_and_the_model_says_that_it_is_a_cosine() -> None:
    status, answer = await reranked(EmbeddingCache(), query="fruit", documents=["stone", "pear"])
    assert (status, answer["model"]) == (200, "cosine/mini")
    _, answer = await reranked(
        EmbeddingCache(), query="fruit", documents=["stone", "pear", "apple"], return_documents=True
    )
    assert [(each["index"], each["document"]["text"]) for each in answer["results"]] == [
        (2, "apple"),
        (1, "pear"),
        (0, "stone"),
    ]
    assert [each["relevance_score"] for each in answer["results"]] == pytest.approx([0.96, 0.8, 0], abs=1e-6)


async def test_vectors_are_written_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = list[str]()

    async def give_way(tenant: str) -> None:
        turns.append(tenant)

    monkeypatch.setattr(embedding, "give_way", give_way)
    status, answer = await replied(
        Embedding(admission(Bills()), EmbeddingCache()).embed, input=["fruit"] * 255 + ["stone"]
    )
    assert (status, answer["model"], answer["usage"]) == (200, "mini", {"prompt_tokens": 320, "total_tokens": 320})
    assert [each["index"] for each in answer["data"]] == list(range(256))
    assert [answer["data"][index]["embedding"] for index in (0, 255)] == [[1, 0], [-1, 0]]
    assert len(turns) == 64


async def test_long_documents_are_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()

    async def aside(tenant: str, size: int, work: Callable[[], bytes]) -> bytes:
        sizes.append(size)
        return work()

    monkeypatch.setattr(embedding, "aside", aside)
    roomy = replace(admission(Bills()), settings=SETTINGS.model_copy(update={"max_content_bytes": 2_000_000}))
    documents = ["x" * 400_000] * 3
    for shown in (False, True):
        serve = Embedding(roomy, EmbeddingCache()).rerank
        _, answer = await replied(serve, query="fruit", documents=documents, return_documents=shown)
        assert [each.get("document") for each in answer["results"]] == [{"text": documents[0]} if shown else None] * 3
    assert sizes[0] < MEDIUM_BYTES < LARGE_BYTES < sizes[1]


async def test_documents_may_be_objects_and_only_the_best_may_be_asked_for() -> None:
    documents = [{"text": "stone"}, "apple", {"text": "pear"}]
    _, answer = await reranked(EmbeddingCache(), query="fruit", documents=documents, top_n=2, model="cosine/mini")
    assert [each["index"] for each in answer["results"]] == [1, 2]
    assert "document" not in answer["results"][0]


async def test_a_thousand_documents_are_embedded_in_parts_for_their_tenant() -> None:
    cache, bills = EmbeddingCache(), Bills()
    status, answer = await reranked(cache, bills, query="fruit", documents=["x" * 40] * 999 + ["apple"])
    assert (status, answer["results"][0]["index"], len(answer["results"])) == (200, 999, 1_000)
    assert [len(each.texts) for each in cache.asked] == [256, 256, 256, 233]
    assert {each.tenant for each in cache.asked} == {EVERYTHING.name}
    assert answer["usage"]["total_tokens"] == bills.made[0].reserved == bills.made[0].cost == (999 * 40 + 10) // 4


async def test_a_cache_that_is_away_costs_nothing() -> None:
    bills = Bills()
    status, _ = await reranked(EmbeddingCache(Unavailable("gone")), bills, query="fruit", documents=["x" * 400])
    assert (status, bills.made[0].cost) == (503, 0)


class LimitedCache(EmbeddingCache):
    """Refuses a text that is too long, by its place in the request."""

    async def embed(self, request: cache_pb2.EmbedRequest, *_: Any) -> cache_pb2.EmbedResponse:
        for index, text in enumerate(request.texts):
            if text == "long":
                raise InvalidInput(f"texts[{index}]", "at most 128 tokens", "300 tokens")
        return await super().embed(request)


@pytest.mark.parametrize(
    ("query", "documents", "named", "free"),
    [
        pytest.param("long", ["a"], "query", True, id="the query"),
        pytest.param("fruit", ["a", "long"], "documents[1]", True, id="a document"),
        pytest.param("fruit", ["a"] * 600 + ["long"], "documents[600]", False, id="after parts that were embedded"),
    ],
)
async def test_a_text_that_is_too_long_has_the_callers_name(
    query: str, documents: list[str], named: str, free: bool
) -> None:
    bills = Bills()
    status, answer = await reranked(LimitedCache(), bills, query=query, documents=documents)
    assert (status, answer["error"]["param"]) == (400, named)
    assert bool(bills.made[0].cost) is not free


@pytest.mark.parametrize(
    ("body", "status", "param", "limit"),
    [
        ({"documents": ["a"]}, 400, "query", "a string"),
        ({"query": "q", "documents": []}, 400, "documents", "1 to 1000 documents"),
        ({"query": "q", "documents": ["a"] * 1_001}, 400, "documents", "1001"),
        ({"query": "q", "documents": ["a", {}]}, 400, "documents[1].text", "a string"),
        ({"query": "q", "documents": ["a", None]}, 400, "documents[1]", "a string, or an object"),
        ({"query": "q", "documents": ["a", 7]}, 400, "documents[1]", "an object"),
        ({"query": "q", "documents": [{"text": 1}]}, 400, "documents[0].text", "a string"),
        ({"query": "q", "documents": ["a"], "top_n": 0}, 400, "top_n", "at least 1"),
        ({"query": "q", "documents": ["a"], "max_tokens_per_doc": 9}, 400, "max_tokens_per_doc", "not supported"),
        ({"query": "q", "documents": ["a" * 300_000]}, 400, "documents", "at most 262144 bytes together"),
        ({"query": "q", "documents": ["a"], "model": "rerank-v3.5"}, 404, "model", "cosine/mini"),
    ],
)
async def test_limits_and_models_are_named(body: dict[str, Any], status: int, param: str, limit: str) -> None:
    answered, answer = await reranked(EmbeddingCache(), **body)
    assert (answered, answer["error"]["param"]) == (status, param)
    assert limit in answer["error"]["message"]


@pytest.mark.parametrize(("model", "status"), [("else", 404), ("auto", 501)])
async def test_without_an_embedder_a_name_is_unknown_and_the_rest_is_not_supported(model: str, status: int) -> None:
    cache = EmbeddingCache(NotSupported("pip install 'hedgerow[cache,embedder]'"))
    for got, answer in (
        await reranked(cache, model=model, query="fruit", documents=["pear"]),
        await replied(Embedding(admission(Bills()), cache).embed, model=model, input="fruit"),
    ):
        assert got == status
        assert ("hedgerow[cache,embedder]" in answer["error"]["message"]) is (status == 501)
