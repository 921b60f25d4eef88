"""A cache in this process, of the parts that the service is put together from, with its default settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.cache import engines
from services.cache.answers import Answers
from services.cache.config import CacheSettings
from services.cache.database import Database
from services.cache.embedding import Embedder
from services.cache.entries import Entries
from services.cache.file_store import FileStore
from services.cache.memory import Memory
from services.cache.semantic_match import language
from services.cache.semantic_match.thresholds import Thresholds
from services.cache.semantic_match.verification import Verification
from services.cache.vectors import Vector, VectorIndex
from services.cache.watch import Watchers


def load(settings: CacheSettings) -> engines.Engine:
    """The embedder's engine, warm."""
    assert settings.embedder != "none"
    return engines.load(settings.embedder, settings.model_cache, settings.max_embedded_tokens, settings.model)


def now_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def running(
    settings: CacheSettings, engine: engines.Engine, embedder: Embedder, memory: Memory
) -> AsyncIterator[tuple[Answers, FileStore]]:
    """A cache on the file that the settings name, which holds what is in it."""
    file = Database(settings.database)
    store = FileStore(file, memory, engine.name, settings.stale_ms, settings.max_waiting_bytes, now_ms)
    verification = Verification(memory.thresholds, settings.verify_share)
    language.load()  # half a second that no measured lookup should wait for
    unknown = language.reader(engine.languages)
    answers = Answers(memory, store, embedder, engine.unseen, unknown, verification, now_ms)
    await store.load()
    commits = asyncio.create_task(store.run())
    try:
        yield answers, store
    finally:
        commits.cancel()
        await asyncio.wait([commits])
        await store.close()
        answers.close()


class RememberingEmbedder(Embedder):
    """Remembers every vector."""

    def __init__(self, engine: engines.Engine, settings: CacheSettings):
        super().__init__(engine, settings.embedding_cache_bytes, settings.embedding_cache_ttl_ms / 1000)
        self.vectors: dict[str, Vector | None] = {}

    async def embed(self, text: str, tenant: str) -> Vector | None:
        vector = await super().embed(text, tenant)
        self.vectors[text] = vector
        return vector


def make_memory(settings: CacheSettings, index: VectorIndex | None = None) -> Memory:
    """The memory of a cache, around an index of vectors."""
    entries = Entries(settings.entries, settings.max_bytes, settings.stale_ms)
    thresholds = Thresholds(settings.similarity_threshold, settings.max_wrong)
    return Memory(entries, index or VectorIndex(engines.DIMENSION), Watchers(settings.watch_queue), thresholds)
