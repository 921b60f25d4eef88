"""What the cache service is asked for directly: embeddings, its counts, and to forget."""

from __future__ import annotations

import base64
import struct
from typing import Any

from google.protobuf.json_format import MessageToDict

from hedgerow.cache.v1 import cache_pb2
from hedgerow.channel import MAX_MESSAGE_BYTES
from services.gateway.api.reports import to_report
from services.gateway.errors import ModelUnknown
from services.gateway.http.auxiliary_admission import Aside
from services.gateway.http.errors import NotOffered
from services.gateway.http.exchange import Exchange
from services.gateway.http.sse import compact
from services.gateway.http.text_inputs import read_texts
from services.gateway.upstream.stubs import Cache
from services.runtime.errors import InvalidInput, ServiceError

_MOST_TEXTS = 256  # the contract's
_MOST_BYTES = MAX_MESSAGE_BYTES // 2  # which the cache takes in one message, whatever is around the texts
_ANY = ("auto", "default")
_STATS = cache_pb2.GetStatsResponse.DESCRIPTOR.fields
_COUNTS = [field.name for field in _STATS if field.type == field.TYPE_INT64]  # which protobuf's JSON has as texts


class Caching:
    """Serves `/v1/embeddings`, `/v1/cache/stats`, the removal of entries and reports of wrong ones."""

    def __init__(self, aside: Aside, cache: Cache | None):
        self._aside, self._cache = aside, cache

    async def embed(self, exchange: Exchange) -> None:
        cache, body = self._there("embeddings"), await exchange.fields()
        most_bytes = min(self._aside.settings.max_content_bytes, _MOST_BYTES)
        given, model = read_texts(body, "input", _MOST_TEXTS, most_bytes), body.text("model") or _ANY[0]
        packed = body.one_of("encoding_format", {"float": False, "base64": True}) or False
        async with self._aside.admitted(exchange, tokens=given.tokens) as admitted:
            request = cache_pb2.EmbedRequest(texts=given.texts, tenant=admitted.tenant)
            try:
                reply = await cache.embed(request, admitted.timeout_s, admitted.metadata)
            except ServiceError as error:
                admitted.failed(error)
                raise
            if model not in (*_ANY, reply.model):
                raise ModelUnknown(model, ", ".join((reply.model, *_ANY)))
            dimensions = len(reply.embeddings[0].values)
            if (wanted := body.whole("dimensions")) not in (None, dimensions):
                raise InvalidInput("dimensions", f"{dimensions}", wanted)
            await exchange.reply.whole(200, compact(_embeddings(reply, given.tokens, packed=packed)))

    async def stats(self, exchange: Exchange) -> None:
        cache = self._there("cache/stats")
        if not (self._aside.settings.http.metrics or _alone(exchange)):
            raise NotOffered("cache/stats: tell of all tenants; HEDGEROW_GATEWAY_HTTP__METRICS=true serves them")
        async with self._aside.admitted(exchange) as admitted:
            counts = await cache.stats(admitted.tenant, admitted.timeout_s, admitted.metadata)
            told = MessageToDict(counts, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
            await exchange.reply.whole(200, compact(told | {name: int(told[name]) for name in _COUNTS}))

    async def remove(self, exchange: Exchange) -> None:
        """One entry, or all of the tenant's."""
        key = exchange.scope["path_params"].get("key", "")
        cache, tenant = self._there("cache"), exchange.credential.tenant.name
        # Whoever knows a tenant's name and a question can work out a key, so the tenant goes with it.
        target = {"key": key, "owner": tenant} if key else {"tenant": tenant}
        request = cache_pb2.InvalidateRequest(**target)
        async with self._aside.admitted(exchange) as admitted:
            removed = await cache.invalidate(request, admitted.timeout_s, admitted.metadata)
            await exchange.reply.whole(200, compact({"removed": removed}))

    async def report_wrong(self, exchange: Exchange) -> None:
        """An answer was wrong for what was asked."""
        cache, tenant, body = self._there("cache/wrong"), exchange.credential.tenant.name, await exchange.fields()
        request = to_report(body.needed("key"), body.text("question"), tenant)
        async with self._aside.admitted(exchange) as admitted:
            tightened = await cache.report(request, admitted.timeout_s, admitted.metadata)
            await exchange.reply.whole(200, compact({"tightened": tightened}))

    def _there(self, what: str) -> Cache:
        if self._cache is None:
            raise NotOffered(f"{what}: needs a cache service (HEDGEROW_GATEWAY_CACHE_ADDRESS)")
        return self._cache


def _alone(exchange: Exchange) -> bool:
    """Whether there is one tenant."""
    return exchange.credential.tenant.anonymous


def _embeddings(reply: cache_pb2.EmbedResponse, tokens: int, *, packed: bool) -> dict[str, Any]:
    def shown(values: Any) -> str | list[float]:
        return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode() if packed else list(values)

    data = [
        {"object": "embedding", "index": index, "embedding": shown(each.values)}
        for index, each in enumerate(reply.embeddings)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": reply.model, "data": data, "usage": usage}
