"""Collections with an engine that needs no model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from services.cache.collections.background_embedding import BackgroundEmbedder
from services.cache.collections.collections import Collections
from services.cache.collections.documents import Document, Format
from services.cache.collections.file import CollectionFile
from services.cache.collections.settings import CollectionSettings
from services.cache.embedding import Embedder
from tests.unit.cache.conftest import DIMENSION, BagOfWords, Clock

TOKENS = 32
OpenCollections = Callable[..., Collections]


def document(source: str, text: str, format: Format = Format.MARKDOWN) -> Document:
    return Document(source, "", text, format)


@pytest.fixture
async def open_collections() -> AsyncIterator[OpenCollections]:
    """Opens collections, and closes them after the test."""
    opened: list[tuple[Embedder, Collections]] = []

    def open_collections(path: str = "", engine: BagOfWords | None = None, **limits: Any) -> Collections:
        engine = engine or BagOfWords()
        file = CollectionFile(path, DIMENSION)
        embedder = Embedder(engine, 100_000, 60)
        settings = CollectionSettings(snippet_tokens=TOKENS, **limits)
        collections = Collections(file, embedder, BackgroundEmbedder(lambda: engine), engine.length, settings, Clock())
        file.load(engine.name)
        opened.append((embedder, collections))
        return collections

    yield open_collections
    for embedder, collections in opened:
        embedder.close()
        collections.close()
