"""What the cache service is asked for directly: its counts, and to forget."""

from __future__ import annotations

from google.protobuf.json_format import MessageToDict

from hedgerow.cache.v1 import cache_pb2
from services.gateway.api.reports_and_warmup import to_report
from services.gateway.http.endpoints.endpoint_admission import EndpointAdmission
from services.gateway.http.errors import NotOffered
from services.gateway.http.server.exchange import Exchange
from services.gateway.upstream.cache import Cache
from services.runtime.strict_json import compact

_STATS = cache_pb2.GetStatsResponse.DESCRIPTOR.fields
_COUNTS = [field.name for field in _STATS if field.type == field.TYPE_INT64]  # which protobuf's JSON has as texts


class Caching:
    """Serves `/v1/cache/stats`, the removal of entries and reports of wrong ones."""

    def __init__(self, admission: EndpointAdmission, cache: Cache | None):
        self._admission, self._cache = admission, cache

    async def stats(self, exchange: Exchange) -> None:
        cache = present(self._cache, "cache/stats")
        if not exchange.credential.tenant.anonymous:  # the counts are those of all tenants
            raise NotOffered("cache/stats: not served here with keys: HEDGEROW_CACHE_METRICS_ADDRESS serves them")
        async with self._admission.admitted(exchange) as admitted:
            counts = await cache.stats(admitted.tenant, admitted.timeout_s, admitted.metadata)
            body = MessageToDict(counts, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
            await exchange.reply.whole(200, compact(body | {name: int(body[name]) for name in _COUNTS}))

    async def remove(self, exchange: Exchange) -> None:
        """Remove one entry, or all of the tenant's."""
        key = exchange.scope["path_params"].get("key", "")
        cache, tenant = present(self._cache, "cache"), exchange.credential.tenant.name
        # A key can be computed from a tenant's name and a question, so the tenant goes with it.
        target = {"key": key, "owner": tenant} if key else {"tenant": tenant}
        request = cache_pb2.InvalidateRequest(**target)
        async with self._admission.admitted(exchange) as admitted:
            removed = await cache.invalidate(request, admitted.timeout_s, admitted.metadata)
            await exchange.reply.whole(200, compact({"removed": removed}))

    async def report_wrong(self, exchange: Exchange) -> None:
        """An answer was wrong for what was asked."""
        cache, tenant, body = (
            present(self._cache, "cache/wrong"),
            exchange.credential.tenant.name,
            await exchange.fields(),
        )
        request = to_report(body.needed("key"), body.text("question"), tenant)
        async with self._admission.admitted(exchange) as admitted:
            tightened = await cache.report(request, admitted.timeout_s, admitted.metadata)
            await exchange.reply.whole(200, compact({"tightened": tightened}))


def present(cache: Cache | None, what: str) -> Cache:
    """The cache service, which `what` needs. Raises `NotOffered` where there is none."""
    if cache is None:
        raise NotOffered(f"{what}: needs a cache service (`cache` in a mesh file, or HEDGEROW_GATEWAY_CACHE_ADDRESS)")
    return cache
