"""The composition root of the cache service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from google.protobuf.descriptor import ServiceDescriptor

from hedgerow.cache.v1 import cache_pb2
from hedgerow.collection.v1 import collection_pb2
from hedgerow.tool.v1 import tool_pb2
from services.cache import metrics, parts
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.embedding import Embedder
from services.cache.entries import Entries, now_ms
from services.cache.memory import Memory
from services.cache.semantic_match.thresholds import Thresholds, made_by
from services.cache.semantic_match.verification import Verification
from services.cache.servicer import CacheServicer
from services.cache.store import opener
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
    own = await _parts(settings)
    entries = Entries(settings.entries, settings.max_bytes, settings.stale_ms)
    default = settings.similarity_threshold
    made = made_by(default, own.engine.name) if settings.verify_share else ""
    thresholds = Thresholds(default, settings.max_wrong, made)
    memory = Memory(entries, own.index, Watchers(settings.watch_queue), thresholds)
    open_store = opener(settings.store_used)
    async with open_store(settings, memory, own.engine.name, now_ms) as store:
        embedder = Embedder(own.engine, settings.embedding_cache_bytes, settings.embedding_cache_ttl_ms / 1000)
        verification = Verification(thresholds, settings.verify_share)
        answers = Answers(
            memory,
            store,
            embedder=embedder,
            unseen=own.engine.unseen,
            unknown=own.unknown,
            verification=verification,
            now_ms=now_ms,
            ready=own.ready,
        )
        servicer = CacheServicer(answers, settings)
        try:
            await store.load()
            _log.info("%d entries loaded", len(entries))
            async with own.collections(settings, embedder) as around:
                with metrics.exported(answers, around.collections):
                    async with asyncio.TaskGroup() as tasks:
                        work = (store.run(), _sweep(answers, settings), around.run())
                        running = [tasks.create_task(each) for each in work]
                        yield {_CACHE: servicer, _COLLECTION: around.collection, _TOOL: around.tool}
                        for task in running:
                            task.cancel()
        finally:
            servicer.drain()
            answers.sweep()
            await store.close()
            answers.close()


async def _parts(settings: CacheSettings) -> parts.CacheParts:
    """The parts for the settings. Ends the process with 2 if a package that they need is not installed."""
    try:
        return await parts.load(settings)
    except parts.NotInstalled as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


async def _sweep(answers: Answers, settings: CacheSettings) -> None:
    more = False
    while True:
        await asyncio.sleep(0 if more else settings.sweep_interval_ms / 1000)
        more = answers.sweep()


SERVICE = serve.Service("cache", CacheSettings, [_CACHE, _COLLECTION, _TOOL], assemble)

if __name__ == "__main__":
    serve.main(*SERVICE)
