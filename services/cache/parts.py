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
class AuxiliaryServices:
    """Further gRPC services of the process (collections, tools), and the collections behind them; None without an
    embedding model."""

    collection: Servicer
    tool: Servicer
    collections: Collections | None = None

    async def run(self) -> None:
        """The background work of collections, until cancelled."""
        if self.collections:
            await self.collections.run()


class CacheParts(Protocol):
    """The parts of a cache that depend on the embedding model."""

    engine: Engine
    index: VectorIndex | None

    def unknown(self, text: str) -> str:
        """The language (ISO 639-1) of a text if the model does not know it, else an empty string."""

    async def ready(self) -> None:
        """Return when texts can be compared: a model with lazy loading is loaded now."""

    def collections(
        self, settings: CacheSettings, embedder: Embedder
    ) -> AbstractAsyncContextManager[AuxiliaryServices]:
        """The further services, while they run."""


class NotInstalled(Exception):
    """The embedder needs a package that is not installed."""


async def load(settings: CacheSettings) -> CacheParts:
    """The parts for the settings, warmed up. Raises `NotInstalled`."""
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
