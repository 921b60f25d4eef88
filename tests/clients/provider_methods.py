"""The Python packages of Cohere, Voyage, Mistral and Azure OpenAI: embeddings and rerank."""

from __future__ import annotations

from typing import Any

import cohere
import openai
import voyageai
from checks import tell_each
from mistralai.client import Mistral

KEY, QUERY, DOCUMENTS = "sk-of-the-caller", "capital", ["Berlin.", "Paris is the capital of France."]


def refused(ask: Any) -> list[Any]:
    """The type of an error, and the provider's words in it."""
    try:
        ask()
    except Exception as error:
        body = getattr(error, "body", None)
        return [type(error).__name__, body["message"] if isinstance(body, dict) else str(error)]
    return ["answered"]


def cohere_rerank(url: str) -> Any:
    client = cohere.ClientV2(api_key=KEY, base_url=url)

    def rerank(documents: list[str]) -> Any:
        return client.rerank(model="rerank-v3.5", query=QUERY, documents=documents, top_n=1)

    answer = rerank(DOCUMENTS)
    assert isinstance(answer, cohere.V2RerankResponse)
    (best,) = answer.results
    return [best.index, best.relevance_score, answer.meta.billed_units.search_units, refused(lambda: rerank([]))]


def voyage(url: str) -> Any:
    client = voyageai.Client(api_key=KEY, base_url=f"{url}/v1")
    vectors = client.embed(DOCUMENTS, model="voyage-3.5", input_type="document")
    ranked = client.rerank(QUERY, DOCUMENTS, model="voyage-3.5", top_k=1)
    unknown = refused(lambda: client.embed(DOCUMENTS, model="unknown"))
    return [vectors.embeddings, vectors.total_tokens, ranked.results[0].index, ranked.total_tokens, unknown]


def mistral(url: str) -> Any:
    with Mistral(api_key=KEY, server_url=url) as client:
        answer = client.embeddings.create(model="voyage-3.5", inputs=DOCUMENTS)
    return [answer.data[1].embedding, answer.usage.prompt_tokens]


def azure(url: str) -> Any:
    options: Any = {"azure_endpoint": url, "api_key": KEY, "api_version": "2024-10-21", "max_retries": 0}
    client = openai.AzureOpenAI(**options)
    answer = client.embeddings.create(model="vectors", input=DOCUMENTS)
    fixed = openai.AzureOpenAI(**options, azure_deployment="vectors").embeddings.create(model="?", input=DOCUMENTS)
    return [answer.data[1].embedding, answer.usage.prompt_tokens, fixed.model]


tell_each(cohere_rerank, voyage, mistral, azure)
