"""The composition root of the cache service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.cache.v1 import cache_pb2
from services.cache import engines, metrics
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.database import Database
from services.cache.embedding import Embedder
from services.cache.engines import Engine
from services.cache.entries import Entries
from services.cache.errors import DatabaseRefused
from services.cache.file_store import FileStore
from services.cache.memory import Memory
from services.cache.redis_store import RedisStore
from services.cache.servicer import CacheServicer
from services.cache.store import Store
from services.cache.vectors import VectorIndex
from services.cache.watch import Watchers
from services.runtime.process import serve
from services.runtime.shared_state import connected

_CACHE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
_log = logging.getLogger("services.cache")


@asynccontextmanager
async def assemble(settings: CacheSettings) -> AsyncIterator[Mapping[ServiceDescriptor, CacheServicer]]:
    """A cache that is loaded from its store and warm."""
    file = None if settings.redis_url else _open(settings.database)
    engine = await asyncio.to_thread(
        engines.load, settings.embedder, settings.model_cache, settings.max_embedded_tokens
    )
    entries = Entries(settings.max_entries, settings.max_bytes, settings.stale_ms)
    memory = Memory(entries, VectorIndex(engines.DIMENSION), Watchers(settings.watch_queue))
    async with _stored(settings, file, memory, engine) as store:
        embedder = Embedder(engine, settings.embedding_cache_bytes, settings.embedding_cache_ttl_ms / 1000)
        answers = Answers(memory, store, embedder, now_ms=_now_ms)
        servicer = CacheServicer(answers, settings)
        try:
            await store.load()
            _log.info("%d entries loaded", len(entries))
            with metrics.exported(answers, store):
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


@asynccontextmanager
async def _stored(
    settings: CacheSettings, file: Database | None, memory: Memory, engine: Engine
) -> AsyncIterator[Store]:
    """Where the entries are kept: in Redis where one is named, else in the file."""
    if file:
        yield FileStore(file, memory, engine.name, settings.stale_ms, settings.max_waiting_bytes, _now_ms)
        return
    if settings.database:
        _log.warning("database %s is not used: redis_url is set, and Redis keeps the entries", settings.database)
    async with connected(settings.redis_url, settings.redis_timeout_ms / 1000) as state:
        yield RedisStore(state, memory, engine.name, settings.stale_ms, settings.max_queued, _now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _open(path: str) -> Database:
    try:
        return Database(path)
    except DatabaseRefused as error:
        _log.critical("%s", error)
        raise SystemExit(2) from None


async def _sweep(answers: Answers, settings: CacheSettings) -> None:
    while True:
        await asyncio.sleep(settings.sweep_interval_ms / 1000)
        answers.sweep()


if __name__ == "__main__":
    serve.main("cache", CacheSettings, [_CACHE], assemble)
