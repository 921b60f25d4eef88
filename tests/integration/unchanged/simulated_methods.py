"""A simulator of other providers' embeddings and rerank, for which there is no account here. Its answers and refusals
are those of their documents, and the providers' own Python packages read them in the tests.

Sources: https://docs.cohere.com/reference/rerank, https://docs.voyageai.com/reference/embeddings-api,
https://docs.mistral.ai/api, https://learn.microsoft.com/azure/ai-services/openai/reference, and `docs/openapi.json` of
https://github.com/huggingface/text-embeddings-inference.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.recording_provider import Asked

MOST_TEXTS, TOKENS, SEARCHES = 3, 17, 1
VECTOR = (0.25, -1.5)


@dataclass
class SimulatedMethods:
    """`url` is that of the host. `asked` has the requests, and `answered` the body of each answer, oldest first."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answered: list[bytes] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        headers = {name.lower(): text for name, text in request.headers.items()}
        self.asked.append(Asked(request.path_qs, body, headers))
        named = {"model": name} if (name := request.match_info.get("name")) else {}  # Azure reads that of the path
        status, reply = _reply_of(request.path, {**body, **named})
        self.answered.append(reply.encode() if isinstance(reply, str) else json.dumps(reply).encode())
        kind = "text/plain" if isinstance(reply, str) else "application/json"
        counted = {"x-compute-tokens": str(TOKENS)} if request.path == "/rerank" else {}
        return web.Response(body=self.answered[-1], status=status, content_type=kind, headers=counted)


def _reply_of(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A status and an answer."""
    match path:
        case "/v2/rerank":
            return _of_cohere(body)
        case "/rerank":
            return _of_tei(body)
        case "/v1/rerank":
            ranked = [{"index": 1, "relevance_score": 0.4375}, {"index": 0, "relevance_score": 0.25}]
            return 200, {"object": "list", "data": ranked[: body["top_k"]], "model": body["model"], "usage": _usage()}
    if body["model"] == "unknown":
        return 400, {"detail": "Model unknown is not supported."}  # Voyage's
    return 200, _vectors(body)


def _of_cohere(body: dict[str, Any]) -> tuple[int, Any]:
    if not body["documents"]:
        return 400, {"id": "7", "message": "invalid request: list of documents must not be empty"}
    ranked = [{"index": 1, "relevance_score": 0.999071}, {"index": 0, "relevance_score": 1e-05}]
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": SEARCHES}}
    return 200, {"id": "07734bd2", "results": ranked[: body["top_n"]], "meta": meta}


def _of_tei(body: dict[str, Any]) -> tuple[int, Any]:
    if not isinstance(body["texts"], list):
        return 422, "Failed to deserialize the JSON body into the target type: texts: expected a sequence"
    if len(body["texts"]) > MOST_TEXTS:
        return 422, {"error": f"batch size > maximum allowed batch size {MOST_TEXTS}", "error_type": "Validation"}
    return 200, [{"index": 1, "score": 0.99734}, {"index": 0, "score": 1.6549e-05}]


def _vectors(body: dict[str, Any]) -> dict[str, Any]:
    packed = base64.b64encode(struct.pack("<2f", *VECTOR)).decode()
    vector = packed if body.get("encoding_format") == "base64" else VECTOR
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, _ in enumerate(body["input"])]
    return {"id": "e-1", "object": "list", "data": data, "model": body["model"], "usage": _usage()}


def _usage() -> dict[str, int]:
    return {"prompt_tokens": TOKENS, "total_tokens": TOKENS}


@asynccontextmanager
async def simulated_methods() -> AsyncIterator[SimulatedMethods]:
    """It serves on loopback."""
    provider, app = SimulatedMethods(), web.Application()
    for path in (
        *("/v1/embeddings", "/v1/rerank", "/v2/rerank", "/rerank"),
        "/openai/deployments/{name}/embeddings",
    ):
        app.router.add_post(path, provider.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
