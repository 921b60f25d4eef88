"""The cache service with its real engine."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import pytest_asyncio

from hedgerow.cache.v1 import cache_pb2
from hedgerow.cache.v1.cache_pb2_grpc import CacheServiceStub
from hedgerow.channel import open_channel
from tests.conftest import starting
from tests.integration.cache_process import CAPITAL, REWORDED, StartCache, lookup, store
from tests.waiting import until

ON_MODULES_LOOP = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cache(model_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CacheServiceStub]:
    """For the tests at the end of the file, which need no cache of their own."""
    async with starting(tmp_path_factory.mktemp("logs")) as start:
        process = await start("cache", model_cache=model_cache)
        async with open_channel(process.spec.address) as channel:
            yield CacheServiceStub(channel)


async def test_a_stored_answer_survives_a_kill(start_cache: StartCache, tmp_path: Path) -> None:
    database = tmp_path / "cache.db"
    process, cache = await start_cache(database=database)
    stored = await cache.Store(store(CAPITAL))
    process.signal(signal.SIGKILL)
    await process.stop()

    _, cache = await start_cache(database=database)
    exact = await cache.Lookup(lookup(CAPITAL))
    assert (exact.verdict, exact.key, exact.answer.text) == (cache_pb2.VERDICT_EXACT, stored.key, "Paris.")
    before = await cache.GetStats(cache_pb2.GetStatsRequest())
    assert before.embedding_misses == 0
    semantic = await cache.Lookup(lookup(REWORDED))
    assert (semantic.verdict, semantic.key) == (cache_pb2.VERDICT_SEMANTIC, stored.key)
    assert 0.9 <= semantic.similarity < 1
    assert 0 < semantic.ttl_ms <= stored.ttl_ms
    stats = await cache.GetStats(cache_pb2.GetStatsRequest())
    assert (stats.lookups, stats.exact_hits, stats.semantic_hits, stats.entries) == (2, 1, 1, 1)


async def test_every_store_that_was_answered_survives_a_kill_amid_stores(
    start_cache: StartCache, tmp_path: Path
) -> None:
    database = tmp_path / "cache.db"
    process, cache = await start_cache(database=database)
    answered: list[int] = []

    async def keep(number: int) -> None:
        try:
            await cache.Store(store(f"What is {number} plus 1?"))
            answered.append(number)
            if len(answered) == 40:
                process.signal(signal.SIGKILL)
        except grpc.aio.AioRpcError:
            pass

    await asyncio.gather(*(keep(number) for number in range(200)))
    await process.stop()
    _, cache = await start_cache(database=database)
    for number in answered:
        found = await cache.Lookup(lookup(f"What is {number} plus 1?"))
        assert found.verdict == cache_pb2.VERDICT_EXACT
    assert len(answered) >= 40


async def test_a_model_that_is_loaded_for_its_first_use_embeds_and_compares_like_one_from_the_start(
    start_cache: StartCache,
) -> None:
    texts = cache_pb2.EmbedRequest(texts=[CAPITAL, REWORDED])
    vectors = []
    for when in ("start", "first_use"):
        _, cache = await start_cache(load_embedder=when)
        await cache.Store(store(CAPITAL))
        assert (await cache.Lookup(lookup(REWORDED))).verdict == cache_pb2.VERDICT_SEMANTIC
        assert (await cache.Lookup(lookup("Wie heißt die Hauptstadt von Frankreich?"))).language == "de"
        vectors.append(await cache.Embed(texts))
    assert vectors[0] == vectors[1]


async def test_invalidations_are_seen_by_lookups_and_by_watchers(start_cache: StartCache) -> None:
    process, cache = await start_cache()
    watch = cache.WatchInvalidations(cache_pb2.WatchInvalidationsRequest())
    assert (await watch.read()).WhichOneof("target") is None
    key = (await cache.Store(store(CAPITAL))).key
    await cache.Store(store("What is the capital of Spain?", "Madrid."))
    assert (await cache.Invalidate(cache_pb2.InvalidateRequest(key=key))).removed == 1
    assert (await watch.read()).key == key
    assert (await cache.Lookup(lookup(CAPITAL))).verdict == cache_pb2.VERDICT_MISS
    assert (await cache.Invalidate(cache_pb2.InvalidateRequest(tenant="acme"))).removed == 1
    assert (await watch.read()).tenant == "acme"
    assert await process.stop() == 0  # an open watch does not hold the drain up
    assert await watch.read() is grpc.aio.EOF


async def test_a_tenants_threshold_survives_a_restart_unless_the_default_changes(
    start_cache: StartCache, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    settings = {"database": folder / "cache.db", "verify_share": 1, "sweep_interval_ms": 10}

    async def threshold(cache: CacheServiceStub, tenant: str) -> float:
        return (await cache.GetStats(cache_pb2.GetStatsRequest(tenant=tenant))).threshold

    process, cache = await start_cache(**settings)
    sample = cache_pb2.Sample(key="0" * 64, score=0.99, accepted=True)
    for _ in range(60):
        await cache.ReportVerdict(cache_pb2.ReportVerdictRequest(tenant="acme", sample=sample))
    known = await threshold(cache, "acme")
    assert known > await threshold(cache, "globex")
    await until(lambda: asyncio.to_thread(samples_on_disk, folder, tmp_path / "copy", "acme"), holds=lambda n: n == 60)
    process.signal(signal.SIGKILL)
    await process.stop()
    process, cache = await start_cache(**settings)
    assert await threshold(cache, "acme") == known
    assert await threshold(cache, "globex") < known
    assert (await cache.GetStats(cache_pb2.GetStatsRequest())).verified_wrong == 60
    assert await process.stop() == 0
    _, cache = await start_cache(**settings, similarity_threshold=0.9)
    assert await threshold(cache, "acme") == 0.9


def samples_on_disk(folder: Path, copy: Path, tenant: str) -> int:
    """How many samples of a tenant a copy of the disk has."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    file = sqlite3.connect(copy / "cache.db")
    try:
        row = file.execute("SELECT length(samples) / 2 FROM verified_traffic WHERE tenant = ?", (tenant,)).fetchone()
    except sqlite3.Error:  # copied while it was written
        return 0
    finally:
        file.close()
    return int(row[0]) if row else 0


@ON_MODULES_LOOP
async def test_embeddings_are_unit_vectors_in_the_order_of_the_texts(cache: CacheServiceStub) -> None:
    reply = await cache.Embed(cache_pb2.EmbedRequest(texts=[CAPITAL, "Bananas are yellow.", REWORDED]))
    first, other, near = (np.array(embedding.values) for embedding in reply.embeddings)
    assert first.shape == (384,)
    assert np.linalg.norm(first) == pytest.approx(1, abs=1e-5)
    assert first @ near > 0.9 > 0.5 > first @ other


@ON_MODULES_LOOP
async def test_embeddings_of_one_tenant_are_reused_for_it_alone(cache: CacheServiceStub) -> None:
    before = (await cache.GetStats(cache_pb2.GetStatsRequest())).embedding_hits
    for tenant, hits in (("ada", 0), ("ada", 1), ("bob", 1), ("", 1)):
        await cache.Embed(cache_pb2.EmbedRequest(texts=["What is embedded once?"], tenant=tenant))
        assert (await cache.GetStats(cache_pb2.GetStatsRequest())).embedding_hits == before + hits
