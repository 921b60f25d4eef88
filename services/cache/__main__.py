"""The composition root of the cache service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.cache.v1 import cache_pb2
from services.cache import engines, metrics, stores
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.conversion import NoModel
from services.cache.embedding import Embedder
from services.cache.entries import Entries
from services.cache.memory import Memory
from services.cache.servicer import CacheServicer
from services.cache.vectors import VectorIndex
from services.cache.watch import Watchers
from services.runtime.process import serve

_CACHE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
_log = logging.getLogger("services.cache")


@asynccontextmanager
async def assemble(settings: CacheSettings) -> AsyncIterator[Mapping[ServiceDescriptor, CacheServicer]]:
    """A cache that is loaded from its store and warm."""
    engine = await _engine(settings)
    entries = Entries(settings.max_entries, settings.max_bytes, settings.stale_ms)
    memory = Memory(entries, VectorIndex(engines.DIMENSION), Watchers(settings.watch_queue))
    open_store = stores.opener(settings.store_used)
    async with open_store(settings, memory, engine.name, _now_ms) as store:
        embedder = Embedder(engine, settings.embedding_cache_bytes, settings.embedding_cache_ttl_ms / 1000)
        answers = Answers(memory, store, embedder, now_ms=_now_ms)
        servicer = CacheServicer(answers, settings)
        try:
            await store.load()
            _log.info("%d entries loaded", len(entries))
            with metrics.exported(answers):
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(store.run()), tasks.create_task(_sweep(answers, settings))]
                    yield {_CACHE: servicer}
                    for task in running:
                        task.cancel()
        finally:
            servicer.drain()
            answers.sweep()
            await store.close()
            answers.close()


async def _engine(settings: CacheSettings) -> engines.Engine:
    """A warm one. Ends the process with 2 where there is no model for it."""
    told = (settings.embedder, settings.model_cache, settings.max_embedded_tokens, settings.model)
    try:
        return await asyncio.to_thread(engines.load, *told)
    except NoModel as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _sweep(answers: Answers, settings: CacheSettings) -> None:
    while True:
        await asyncio.sleep(settings.sweep_interval_ms / 1000)
        answers.sweep()


if __name__ == "__main__":
    serve.main("cache", CacheSettings, [_CACHE], assemble)
