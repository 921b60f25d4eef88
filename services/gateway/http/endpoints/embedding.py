"""Embeddings by the cache's embedder: as vectors (OpenAI's embeddings), and as the order of documents by their distance
from a query (rerank, in the form that Cohere, Jina and vLLM share)."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from functools import partial
from operator import mul
from typing import Any

from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import MAX_MESSAGE_BYTES
from services.gateway.errors import ModelUnknown
from services.gateway.http.endpoints.cache import present
from services.gateway.http.endpoints.endpoint_admission import Admitted, EndpointAdmission, read_texts, tokens_of
from services.gateway.http.endpoints.providers import ANY
from services.gateway.http.fields import Fields
from services.gateway.http.server.exchange import Exchange
from services.gateway.upstream.cache import Cache
from services.runtime.aside import aside, give_way, size_of, size_of_text
from services.runtime.deadline import Deadline
from services.runtime.errors import InvalidInput, NotSupported, ServiceError, TooLate
from services.runtime.strict_json import compact, written

_MOST_TEXTS = 256  # the contract's
_MOST_DOCUMENTS = 1_000  # as Cohere has it
_MOST_BYTES = MAX_MESSAGE_BYTES // 2  # which the cache takes in one message, whatever is around the texts
_COSINE = "cosine/"  # before the embedder's name: no model has read query and document together
_AT_ONCE = 32  # documents that are compared before others have their turn: 0.5 ms
_WRITTEN_AT_ONCE = 4  # vectors that are written: 1 ms
_REFUSED = ("rank_fields", "max_chunks_per_doc", "max_tokens_per_doc", "truncate_prompt_tokens")
Vector = Sequence[float]


class Embedding:
    """Serves `/v1/embeddings` and `/v1/rerank`."""

    def __init__(self, admission: EndpointAdmission, cache: Cache | None):
        self._admission, self._cache = admission, cache

    async def embed(self, exchange: Exchange, body: Fields | None = None, others: Sequence[str] = ()) -> None:
        """`others`: models that may be named besides."""
        cache, body = present(self._cache, "embeddings"), body or await exchange.fields()
        given, model = read_texts(body, "input", _MOST_TEXTS, self._most_bytes), body.text("model") or ANY[0]
        packed = body.one_of("encoding_format", {"float": False, "base64": True}) or False
        wanted = body.whole("dimensions")
        async with self._admission.admitted(exchange, tokens=given.tokens) as admitted:
            try:
                reply = await self._vectors(cache, given.texts, admitted, admitted.timeout_s)
            except ServiceError as error:
                admitted.failed(error)
                _check_known(model, error, others)
                many = isinstance(body.seen("input"), list)
                raise _by_callers_name(error, lambda at: f"input[{at}]" if many else "input") from None
            _check_model(model, reply.model, others)
            dimensions = len(reply.embeddings[0].values)
            if wanted not in (None, dimensions):
                raise InvalidInput("dimensions", f"{dimensions}, which are all of {reply.model}", wanted)
            await exchange.reply.whole(200, await _written(reply, given.tokens, admitted.tenant, packed=packed))

    async def rerank(self, exchange: Exchange, body: Fields | None = None, others: Sequence[str] = ()) -> None:
        """`others`: models that may be named besides."""
        cache, body = present(self._cache, "rerank"), body or await exchange.fields()
        body.refuse(*_REFUSED)
        model, query, documents = body.text("model") or ANY[0], body.needed("query"), _documents(body)
        most = _most(body, len(documents))
        shown = body.flag("return_documents") or False
        tokens = tokens_of("documents", [query, *documents], self._most_bytes)
        async with self._admission.admitted(exchange, tokens=tokens) as admitted:
            try:
                scores, name = await self._scores(cache, query, documents, admitted)
            except NotSupported as error:
                _check_known(model, error, others)
                raise
            _check_model(model, name, others)
            best = sorted(range(len(scores)), key=lambda index: -scores[index])[:most]
            results = [
                {
                    "index": index,
                    "relevance_score": scores[index],
                    **({"document": {"text": documents[index]}} if shown else {}),
                }
                for index in best
            ]
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            response = {"id": f"rerank-{exchange.answer_id}", "model": name, "usage": usage, "results": results}
            size = size_of(len(best)) + (size_of_text(sum(len(documents[index]) for index in best)) if shown else 0)
            await exchange.reply.whole(200, await aside(admitted.tenant, size, partial(written, response, size)))

    async def _scores(
        self, cache: Cache, query: str, documents: Sequence[str], admitted: Admitted
    ) -> tuple[list[float], str]:
        """The cosine of each document with the query, 0 where it is less; and whose figures they are."""
        about: Vector = ()
        deadline = Deadline.after(admitted.timeout_s)
        texts, scores, name = [query, *documents], list[float](), ""
        for begin in range(0, len(texts), _MOST_TEXTS):
            try:
                reply = await self._vectors(cache, texts[begin : begin + _MOST_TEXTS], admitted, deadline.remaining())
            except ServiceError as error:
                if not begin:  # otherwise parts of it were embedded
                    admitted.failed(error)
                raise _by_callers_name(error, partial(_text_of_rerank, begin)) from None
            vectors, name = [each.values for each in reply.embeddings], _COSINE + reply.model
            if not about:
                about, *vectors = vectors
            for at, vector in enumerate(vectors):
                scores.append(min(1.0, max(0.0, sum(map(mul, about, vector)))))
                if at % _AT_ONCE == _AT_ONCE - 1:
                    await give_way(admitted.tenant)
        return scores, name

    async def _vectors(
        self, cache: Cache, texts: Sequence[str], admitted: Admitted, within_s: float
    ) -> cache_pb2.EmbedResponse:
        """Vectors of unit length."""
        if within_s <= 0:
            raise TooLate("rerank: not done within the budget of the request")
        request = cache_pb2.EmbedRequest(texts=texts, tenant=admitted.tenant)
        return await cache.embed(request, within_s, admitted.metadata)

    @property
    def _most_bytes(self) -> int:
        return min(self._admission.settings.max_content_bytes, _MOST_BYTES)


def _check_model(model: str, own: str, others: Sequence[str]) -> None:
    """Raise `ModelUnknown` for a name that is not the embedder's."""
    if model not in (*ANY, own):
        raise ModelUnknown(model, ", ".join((*others, own, *ANY)))


def _check_known(model: str, error: ServiceError, others: Sequence[str]) -> None:
    """Raise `ModelUnknown` for a name, where the `error` says that there is no embedder which could have it."""
    if isinstance(error, NotSupported) and model not in ANY:
        raise ModelUnknown(model, ", ".join((*others, *ANY))) from None


def _by_callers_name(error: ServiceError, name: Callable[[int], str]) -> ServiceError:
    """The error with the caller's `name` of a text, which the cache has named by its position in a request."""
    field = error.metadata.get("field", "")
    if not (isinstance(error, InvalidInput) and field.startswith("texts[")):
        return error
    path = name(int(field[len("texts[") : -1]))
    return InvalidInput(path, error.metadata["limit"], error.metadata["value"])


def _text_of_rerank(begin: int, at: int) -> str:
    """The name of a text in the part of the query and its documents that starts at `begin`."""
    return f"documents[{begin + at - 1}]" if begin + at else "query"


def _documents(body: Fields) -> list[str]:
    """Texts, or objects with one."""
    given = body.array("documents")
    if not 1 <= len(given) <= _MOST_DOCUMENTS:
        raise InvalidInput("documents", f"1 to {_MOST_DOCUMENTS} documents", len(given))
    return [_document(f"documents[{index}]", each) for index, each in enumerate(given)]


def _document(path: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    document = Fields({path: given}).object(path)
    if document is None:
        raise InvalidInput(path, "a string, or an object with a text", "null")
    return Fields({"text": document.seen("text")}, path).needed("text")


def _most(body: Fields, count: int) -> int:
    most = body.whole("top_n")
    if most is not None and most < 1:
        raise InvalidInput("top_n", "at least 1", most)
    return count if most is None else most


async def _written(reply: cache_pb2.EmbedResponse, tokens: int, tenant: str, *, packed: bool) -> bytes:
    """The response. Of 256 vectors, which are 2 MB of JSON, a few are written in a turn of the event loop."""

    def shown(values: Any) -> str | list[float]:
        return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode() if packed else list(values)

    data = list[bytes]()
    for index, each in enumerate(reply.embeddings):
        if index % _WRITTEN_AT_ONCE == _WRITTEN_AT_ONCE - 1:
            await give_way(tenant)
        data.append(compact({"object": "embedding", "index": index, "embedding": shown(each.values)}))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    rest = compact({"object": "list", "model": reply.model, "usage": usage})
    return b'{"data":[' + b",".join(data) + b"]," + rest[1:]
