"""Cache services as processes that share a real Redis, with their real engine."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from hedgerow.cache.v1 import cache_pb2, cache_pb2_grpc
from hedgerow.channel import open_channel
from tests.conftest import Start
from tests.integration.cache_process import CAPITAL, REWORDED, Running, StartCache, lookup, store
from tests.redis import PATIENT_MS, RedisProcess
from tests.waiting import until

EXACT, SEMANTIC, MISS = cache_pb2.VERDICT_EXACT, cache_pb2.VERDICT_SEMANTIC, cache_pb2.VERDICT_MISS
SPAIN = "What is the capital of Spain?"


@pytest.fixture
async def start_cache(start: Start, model_cache: Path, redis: RedisProcess) -> AsyncIterator[StartCache]:
    """Starts a cache service on the Redis and connects to it."""
    async with AsyncExitStack() as stack:

        async def start_cache(name: str, **settings: object) -> Running:
            settings = {"redis_timeout_ms": PATIENT_MS, **settings}
            process = await start("cache", name, model_cache=model_cache, redis_url=redis.url, **settings)
            channel = await stack.enter_async_context(open_channel(process.spec.address))
            return process, cache_pb2_grpc.CacheServiceStub(channel)

        yield start_cache


async def finds(cache: cache_pb2_grpc.CacheServiceStub, text: str, verdict: int, alone: bool | None = False) -> None:
    """Return when a lookup ends so. `alone` None: whatever it says of that."""

    async def found() -> bool:
        reply = await cache.Lookup(lookup(text))
        return reply.verdict == verdict and alone in (None, reply.local_only)

    await until(found)


async def test_stores_and_removals_of_one_replica_reach_the_other_and_its_watchers(
    start_cache: StartCache,
) -> None:
    (_, a), (process, b) = await start_cache("a"), await start_cache("b")
    watch = b.WatchInvalidations(cache_pb2.WatchInvalidationsRequest())
    assert (await watch.read()).WhichOneof("target") is None
    key = (await a.Store(store(CAPITAL, "Lyon."))).key
    await a.Store(store(CAPITAL))
    assert (await watch.read()).key == key  # replaced
    await finds(b, CAPITAL, EXACT)
    await finds(b, REWORDED, SEMANTIC)
    assert (await b.Lookup(lookup(CAPITAL, tenant="globex"))).verdict == MISS
    assert (await b.GetStats(cache_pb2.GetStatsRequest())).embedding_misses == 1  # the question it was asked
    assert (await a.Invalidate(cache_pb2.InvalidateRequest(key=key))).removed == 1
    assert (await watch.read()).key == key
    await finds(b, CAPITAL, MISS)
    await a.Store(store(CAPITAL))
    await a.Store(store(SPAIN, "Madrid."))
    assert (await a.Invalidate(cache_pb2.InvalidateRequest(tenant="acme"))).removed == 2
    assert (await watch.read()).tenant == "acme"
    await finds(b, REWORDED, MISS)
    assert await process.stop() == 0
    assert await watch.read() is grpc.aio.EOF


async def test_every_store_that_was_answered_survives_the_kill_of_its_replica(start_cache: StartCache) -> None:
    (process, a), (_, b) = await start_cache("a"), await start_cache("b")
    answered: list[str] = []

    async def keep(text: str) -> None:
        try:
            await a.Store(store(text))
            answered.append(text)
            if len(answered) == 40:
                process.signal(signal.SIGKILL)
        except grpc.aio.AioRpcError:
            pass

    await asyncio.gather(*(keep(f"What is {number} plus 1?") for number in range(200)))
    await process.stop()
    _, again = await start_cache("a")
    assert len(answered) >= 40
    for cache in (b, again):
        for text in answered:
            await finds(cache, text, EXACT)
    assert (await again.GetStats(cache_pb2.GetStatsRequest())).embedding_misses == 0


PERU = "What is the capital of Peru?"


async def test_without_redis_replicas_serve_what_they_have_and_store_and_remove_nothing(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    (_, a), (_, b) = await start_cache("a"), await start_cache("b")
    removed = (await a.Store(store(SPAIN, "Madrid."))).key
    await a.Store(store(CAPITAL))
    for text in (SPAIN, CAPITAL):
        await finds(b, text, EXACT)
    await redis.kill()
    for cache in (a, b):
        await finds(cache, CAPITAL, EXACT, alone=True)
        await finds(cache, REWORDED, SEMANTIC, alone=True)
    with pytest.raises(grpc.aio.AioRpcError, match="nothing came of the report"):
        await a.ReportVerdict(cache_pb2.ReportVerdictRequest(tenant="acme", key=removed))
    embedded = (await a.GetStats(cache_pb2.GetStatsRequest())).embedding_misses
    skipped = await a.Store(store(PERU, "Lima."))
    assert (skipped.skipped, skipped.ttl_ms) == (True, 0)
    stats = await a.GetStats(cache_pb2.GetStatsRequest())
    assert (stats.stores, stats.embedding_misses) == (2, embedded), "an answer that is not stored is not embedded"
    for request in (cache_pb2.InvalidateRequest(key=removed), cache_pb2.InvalidateRequest(tenant="acme")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await a.Invalidate(request)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "repeat" in (refused.value.details() or "")
        assert _retry_delay_s(refused.value) > 0
    await finds(a, SPAIN, EXACT, alone=True)
    assert (await a.Lookup(lookup(PERU))).verdict != EXACT
    assert (await b.GetStats(cache_pb2.GetStatsRequest())).local_only >= 2
    await redis.start()
    for cache in (a, b):
        await finds(cache, SPAIN, EXACT)
        await finds(cache, CAPITAL, EXACT)
        assert (await cache.Lookup(lookup(PERU))).verdict != EXACT
    assert (await a.Invalidate(cache_pb2.InvalidateRequest(key=removed))).removed == 1
    for cache in (a, b):
        await finds(cache, SPAIN, MISS)
    assert not (await b.Store(store(PERU, "Lima."))).skipped
    await finds(a, PERU, EXACT)


def _retry_delay_s(error: grpc.aio.AioRpcError) -> float:
    raw = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status_pb2.Status.FromString(raw).details)
    return float(retry.retry_delay.ToTimedelta().total_seconds())


async def test_a_frozen_redis_is_gone_for_lookups_and_stores_until_it_goes_on(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    soon = {"redis_timeout_ms": 1_000}
    (_, a), (_, b) = await start_cache("a", max_entries=1, **soon), await start_cache("b", **soon)

    async def keeps(request: cache_pb2.StoreRequest) -> bool:
        return not (await a.Store(request)).skipped

    for request in (store(SPAIN, "Madrid."), store(CAPITAL)):  # here there is room for one
        await until(lambda request=request: keeps(request))
    redis.stop()
    found = await a.Lookup(lookup(CAPITAL))
    assert found.verdict == EXACT
    missed = await a.Lookup(lookup(SPAIN, min_similarity=1))
    assert (missed.verdict, missed.local_only) == (MISS, True)
    assert (await a.Store(store(PERU, "Lima."))).skipped
    redis.cont()
    for cache in (a, b):
        for text in (SPAIN, CAPITAL):
            await finds(cache, text, EXACT)
    await until(lambda: keeps(store(PERU, "Lima.")))
    await finds(b, PERU, EXACT)


async def test_a_replica_starts_without_redis_and_shares_when_it_comes(
    start_cache: StartCache, redis: RedisProcess
) -> None:
    _, a = await start_cache("a")
    await a.Store(store(CAPITAL))
    await redis.kill()
    process, b = await start_cache("b")
    assert (await b.Store(store(SPAIN, "Madrid."))).skipped
    await finds(b, CAPITAL, MISS, alone=True)
    watch = b.WatchInvalidations(cache_pb2.WatchInvalidationsRequest())
    await redis.start()
    assert (await watch.read()).WhichOneof("target") is None  # in force only now
    watch.cancel()
    await finds(b, CAPITAL, EXACT)
    assert not (await b.Store(store(SPAIN, "Madrid."))).skipped
    await finds(a, SPAIN, EXACT)
    log = process.log.read_text()
    assert log.count("Redis does not answer") == log.count("Redis answers again") == 1


async def test_a_database_is_left_alone_where_redis_keeps_the_entries(start_cache: StartCache, tmp_path: Path) -> None:
    process, cache = await start_cache("a", database=tmp_path / "cache.db")
    await cache.Store(store(CAPITAL))
    assert not (tmp_path / "cache.db").exists()
    assert "is not used: redis_url is set" in process.log.read_text()
