"""The composition root of the cache service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.cache.v1 import cache_pb2
from hedgerow.collection.v1 import collection_pb2
from hedgerow.tool.v1 import tool_pb2
from services.cache import device, engines, metrics, stores
from services.cache.answers import Answers
from services.cache.collections.behind import EmbedderBehind
from services.cache.collections.collections import Collections
from services.cache.collections.file import CollectionFile
from services.cache.collections.servicer import CollectionServicer
from services.cache.collections.settings import MOST_TOKENS
from services.cache.collections.tools import ToolServicer
from services.cache.config import CacheSettings
from services.cache.conversion import NoModel
from services.cache.device import Device, NoDevice
from services.cache.embedding import Embedder
from services.cache.entries import Entries
from services.cache.errors import DatabaseRefused
from services.cache.memory import Memory
from services.cache.servicer import CacheServicer
from services.cache.vectors import VectorIndex
from services.cache.verdict.thresholds import Thresholds, made_by
from services.cache.verdict.verification import Verification
from services.cache.watch import Watchers
from services.runtime.process import serve
from services.runtime.rpc.boundary import Servicer

_CACHE = cache_pb2.DESCRIPTOR.services_by_name["CacheService"]
_COLLECTION = collection_pb2.DESCRIPTOR.services_by_name["CollectionService"]
_TOOL = tool_pb2.DESCRIPTOR.services_by_name["ToolService"]
_log = logging.getLogger("services.cache")


@asynccontextmanager
async def assemble(settings: CacheSettings) -> AsyncIterator[Mapping[ServiceDescriptor, Servicer]]:
    """A cache that is loaded from its store and warm."""
    gathering = _device(settings)
    engine = await _engine(settings)
    entries = Entries(settings.max_entries, settings.max_bytes, settings.stale_ms)
    default = settings.similarity_threshold
    thresholds = Thresholds(default, settings.max_wrong, made_by(default, engine.name) if settings.verify_share else "")
    index, watchers = VectorIndex(engines.DIMENSION), Watchers(settings.watch_queue)
    memory = Memory(entries, index, watchers, thresholds, gathering)
    open_store = stores.opener(settings.store_used)
    async with open_store(settings, memory, engine.name, _now_ms) as store:
        embedder = Embedder(engine, settings.embedding_cache_bytes, settings.embedding_cache_ttl_ms / 1000)
        verification = Verification(thresholds, settings.verify_share)
        answers = Answers(memory, store, embedder, engine.unseen, verification, now_ms=_now_ms)
        servicer = CacheServicer(answers, settings)
        try:
            await store.load()
            _log.info("%d entries loaded", len(entries))
            async with _collections(settings, engine, embedder) as collections:
                with metrics.exported(answers, collections):
                    async with asyncio.TaskGroup() as tasks:
                        work = (store.run(), _sweep(answers, settings), collections.run())
                        running = [tasks.create_task(each) for each in work]
                        yield {_CACHE: servicer, **_faces(collections, settings)}
                        for task in running:
                            task.cancel()
        finally:
            servicer.drain()
            answers.sweep()
            await store.close()
            answers.close()


@asynccontextmanager
async def _collections(
    settings: CacheSettings, engine: engines.Engine, embedder: Embedder
) -> AsyncIterator[Collections]:
    """What is in their file. Ends the process with 2 where that is not usable."""
    limits = settings.collections
    try:
        file = await asyncio.to_thread(CollectionFile, settings.collections_database, engines.DIMENSION)
    except DatabaseRefused as error:
        _log.critical("%s", error)
        raise SystemExit(2) from None
    behind = EmbedderBehind(lambda: _load(settings, MOST_TOKENS))
    collections = Collections(file, embedder, behind, engine.length, limits, _now_ms)
    try:
        _log.info("%d snippets loaded", await asyncio.to_thread(file.load, engine.name))
        yield collections
    finally:
        collections.close()


def _faces(collections: Collections, settings: CacheSettings) -> Mapping[ServiceDescriptor, Servicer]:
    limits = settings.collections
    return {
        _COLLECTION: CollectionServicer(collections, limits, settings.max_waiting_bytes),
        _TOOL: ToolServicer(collections, limits.reusable_ms),
    }


async def _engine(settings: CacheSettings) -> engines.Engine:
    """A warm one. Ends the process with 2 where there is no model for it."""
    try:
        return await asyncio.to_thread(_load, settings, settings.max_embedded_tokens)
    except NoModel as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


def _device(settings: CacheSettings) -> Device:
    """What large partitions are gathered on. Ends the process with 2 where it is not there."""
    try:
        return device.load(settings.index_device)
    except NoDevice as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


def _load(settings: CacheSettings, max_tokens: int) -> engines.Engine:
    return engines.load(settings.embedder, settings.model_cache, max_tokens, settings.model)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _sweep(answers: Answers, settings: CacheSettings) -> None:
    while True:
        await asyncio.sleep(settings.sweep_interval_ms / 1000)
        answers.sweep()


if __name__ == "__main__":
    serve.main("cache", CacheSettings, [_CACHE, _COLLECTION, _TOOL], assemble)
