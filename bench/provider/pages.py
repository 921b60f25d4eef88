"""Answers in one piece: the list of models, embeddings and an order of documents, each made of the text alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

MODEL = "simulated"
_DIMENSIONS = 8


def page(path: str, body: bytes) -> tuple[int, bytes]:
    """The status and the JSON of an answer: 404 for a path that is not served, 400 for a body that is not read."""
    make = _PAGES.get(path)
    if make is None:
        return 404, _error(f"{path} is not served", "not_found")
    try:
        return 200, json.dumps(make(json.loads(body or b"{}"))).encode()
    except (ValueError, LookupError, TypeError) as error:
        return 400, _error(f"the body cannot be read ({type(error).__name__})", "invalid_value")


def _models(_: Mapping[str, Any]) -> dict[str, Any]:
    model = {"id": MODEL, "object": "model", "created": 1_700_000_000, "owned_by": "hedgerow"}
    return {"object": "list", "data": [model]}


def _embeddings(asked: Mapping[str, Any]) -> dict[str, Any]:
    given = asked["input"]
    texts = given if isinstance(given, list) else [given]
    data = [
        {"object": "embedding", "index": index, "embedding": [byte / 255 for byte in _digest(text)[:_DIMENSIONS]]}
        for index, text in enumerate(texts)
    ]
    return {"object": "list", "model": MODEL, "data": data, "usage": _usage(texts)}


def _rerank(asked: Mapping[str, Any]) -> dict[str, Any]:
    """By the words that a document shares with the query."""
    words = set(str(asked["query"]).lower().split())
    texts = [each["text"] if isinstance(each, dict) else each for each in asked["documents"]]
    scores = [len(words & set(text.lower().split())) / (len(words) or 1) for text in texts]
    best = sorted(range(len(texts)), key=lambda index: -scores[index])[: asked.get("top_n")]
    results = [{"index": index, "relevance_score": scores[index]} for index in best]
    return {"id": "rerank-1", "model": MODEL, "usage": _usage([asked["query"], *texts]), "results": results}


def _digest(text: object) -> bytes:
    return sha256(str(text).encode()).digest()


def _usage(texts: list[Any]) -> dict[str, int]:
    tokens = sum(len(str(text).split()) for text in texts)
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _error(message: str, code: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code}}).encode()


_PAGES: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "/v1/models": _models,
    "/v1/embeddings": _embeddings,
    "/v1/rerank": _rerank,
}
