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
from services.cache.entries import Entries
from services.cache.errors import DatabaseRefused
from services.cache.journal import Journal
from services.cache.servicer import CacheServicer
from services.cache.vectors import VectorIndex
from services.cache.watch import Watchers
from services.runtime import serve

_CACHE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
_log = logging.getLogger("services.cache")


@asynccontextmanager
async def assemble(settings: CacheSettings) -> AsyncIterator[Mapping[ServiceDescriptor, CacheServicer]]:
    """A cache that is loaded from its database and warm."""
    database = _open(settings.database)
    engine = await asyncio.to_thread(
        engines.load, settings.embedder, settings.model_cache, settings.max_embedded_tokens
    )
    journal = Journal(database)
    answers = Answers(
        Entries(settings.max_entries, settings.max_bytes, settings.stale_ms),
        journal,
        Embedder(engine, settings.embedding_cache_entries),
        VectorIndex(engines.DIMENSION),
        Watchers(settings.watch_queue),
        now_ms=_now_ms,
    )
    over_ms = _now_ms() - settings.stale_ms
    answers.load(await asyncio.to_thread(lambda: list(database.load(engine.name, over_ms))))
    _log.info("%d entries loaded", len(answers.entries))
    servicer = CacheServicer(answers, settings)
    try:
        with metrics.exported(answers):
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(journal.run()), tasks.create_task(_sweep(answers, settings))]
                yield {_CACHE: servicer}
                for task in running:
                    task.cancel()
    finally:
        servicer.drain()
        answers.sweep()
        await journal.close()
        answers.close()


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
