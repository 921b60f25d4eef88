"""The parts that a cache has with an embedding model (`semantic_parts`) and without one (`exact_parts`).

Only the module that the setting `embedder` asks for is imported, so that a cache of exact answers needs no NumPy,
FAISS, CTranslate2 or tokenizers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from services.runtime.rpc.boundary import Servicer

if TYPE_CHECKING:
    from services.cache.collections.collections import Collections
    from services.cache.config import CacheSettings
    from services.cache.embedding import Embedder
    from services.cache.engines import Engine
    from services.cache.vectors import VectorIndex


@dataclass(frozen=True)
class Around:
    """The services beside the cache's own, and the collections that they serve; None without a model."""

    collection: Servicer
    tool: Servicer
    collections: Collections | None = None

    async def run(self) -> None:
        """The background work of collections, until cancelled."""
        if self.collections:
            await self.collections.run()


class CacheParts(Protocol):
    """The parts that a cache is made of."""

    engine: Engine
    index: VectorIndex | None

    def unknown(self, text: str) -> str:
        """The language of a text that the model does not know, ISO 639-1; empty where it does."""

    async def ready(self) -> None:
        """Return once texts can be compared: a model that is loaded at first use is loaded now."""

    def collections(self, settings: CacheSettings, embedder: Embedder) -> AbstractAsyncContextManager[Around]:
        """The services beside the cache's own, while they serve."""


class NotInstalled(Exception):
    """The embedder needs a package that is not here."""


async def load(settings: CacheSettings) -> CacheParts:
    """The parts that the settings ask for, warm. Raises `NotInstalled`."""
    name = "exact_parts" if settings.embedder == "none" else "semantic_parts"
    try:
        made = cast("Callable[[CacheSettings], Awaitable[CacheParts]]", import_module(f"services.cache.{name}").load)
        return await made(settings)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("services"):
            raise
        raise NotInstalled(
            f"embedder: {settings.embedder} needs the package {error.name}: pip install 'hedgerow[cache,embedder]'; "
            "or `none`, for exact answers alone"
        ) from error
