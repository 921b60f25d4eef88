"""A cache that also finds answers to other wordings, and keeps collections of documents: with an embedding model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.cache import device, engines
from services.cache.collections.background_embedding import BackgroundEmbedder
from services.cache.collections.collections import Collections
from services.cache.collections.file import CollectionFile
from services.cache.collections.servicer import CollectionServicer
from services.cache.collections.settings import MOST_TOKENS
from services.cache.collections.tools import ToolServicer
from services.cache.config import CacheSettings
from services.cache.conversion import NoModel
from services.cache.device import Device
from services.cache.embedding import Embedder
from services.cache.entries import now_ms
from services.cache.errors import DatabaseRefused
from services.cache.first_use import FirstUse
from services.cache.parts import AuxiliaryServices
from services.cache.semantic_match import language
from services.cache.vectors import VectorIndex

_log = logging.getLogger("services.cache")


class ByMeaning:
    """The parts of such a cache."""

    def __init__(self, engine: engines.Engine, gathering: Device):
        self.engine, self.index = engine, VectorIndex(engines.DIMENSION, gathering)
        self.unknown, self._loading = language.reader(engine.languages), asyncio.Lock()

    async def ready(self) -> None:
        """Have the languages loaded. The engine is by its first use."""
        if not language.load.is_loaded:
            async with self._loading:
                await asyncio.to_thread(language.load)

    @asynccontextmanager
    async def collections(self, settings: CacheSettings, embedder: Embedder) -> AsyncIterator[AuxiliaryServices]:
        """The content of their file. Ends the process with 2 where that is not usable."""
        limits = settings.collections
        try:
            file = await asyncio.to_thread(CollectionFile, settings.collections_database, engines.DIMENSION)
        except DatabaseRefused as error:
            _log.critical("%s", error)
            raise SystemExit(2) from None
        background = BackgroundEmbedder(FirstUse("the embedding model", lambda: _load(settings, MOST_TOKENS)))
        collections = Collections(file, embedder, background, self.engine.length, limits, now_ms)
        try:
            _log.info("%d snippets loaded", await asyncio.to_thread(file.load, self.engine.name))
            yield AuxiliaryServices(
                CollectionServicer(collections, limits, settings.max_waiting_bytes),
                ToolServicer(collections, limits.reusable_ms),
                collections,
            )
        finally:
            collections.close()


async def load(settings: CacheSettings) -> ByMeaning:
    """See `parts.py`. Ends the process with 2 where there is no model."""
    try:
        return ByMeaning(await asyncio.to_thread(_engine, settings), device.load())
    except NoModel as error:
        _log.error("%s", error)
        raise SystemExit(2) from None


def _engine(settings: CacheSettings) -> engines.Engine:
    """The engine for questions, warmed up, or loaded at its first use."""
    most, kind = settings.max_embedded_tokens, settings.embedder
    assert kind != "none"  # then this module is not imported
    if settings.load_embedder == "first_use":
        if settings.model:
            engines.whole(settings.model)
        return engines.LateEngine(kind, most, lambda: _load(settings, most))
    language.load()
    return _load(settings, most)


def _load(settings: CacheSettings, max_tokens: int) -> engines.Engine:
    assert settings.embedder != "none"
    return engines.load(settings.embedder, settings.model_cache, max_tokens, settings.model)
