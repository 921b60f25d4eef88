"""A cache whose answers are for equal questions alone: no embedding model, no index, no collections.

The same code runs as with a model. Every text counts as too long to embed, so nothing is ever compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NoReturn

from google.protobuf.message import Message

from hedgerow.tool.v1 import tool_pb2
from services.cache.config import CacheSettings
from services.cache.embedding import Embedder
from services.cache.parts import AuxiliaryServices
from services.runtime.errors import Missing, NotSupported
from services.runtime.rpc.boundary import Call

if TYPE_CHECKING:
    from services.cache.vectors import Vector

HOW = "a cache with an embedding model is needed: pip install 'hedgerow[cache,embedder]', and `embedder` not `none`"


class NoEngine:
    """Embeds nothing."""

    name = "none"
    languages = frozenset[str]()
    max_batch = 1
    max_characters = 0

    def embed_batch(self, texts: Sequence[str]) -> list[Vector | None]:
        return [None] * len(texts)

    def length(self, text: str) -> int:
        return 0

    def unseen(self, asked: str, stored: str) -> str:
        return ""


class NoCollections:
    """`hedgerow.collection.v1.CollectionService`, which refuses and says what is missing."""

    async def _refuse(self, request: Message, call: Call) -> NoReturn:
        raise NotSupported(f"this cache keeps no collections: {HOW}")

    PutDocument = RemoveDocuments = ListDocuments = ListCollections = Search = DropCollection = _refuse


class NoTools:
    """`hedgerow.tool.v1.ToolService` without a tool: there is no collection to search."""

    async def ListTools(self, request: tool_pb2.ListToolsRequest, call: Call) -> tool_pb2.ListToolsResponse:
        return tool_pb2.ListToolsResponse()

    async def CallTool(self, request: tool_pb2.CallToolRequest, call: Call) -> NoReturn:
        raise Missing(f"tool: there is no {request.name}")


class ExactOnly:
    """The parts of such a cache."""

    def __init__(self) -> None:
        self.engine, self.index = NoEngine(), None

    def unknown(self, text: str) -> str:
        """No language is unknown, because no texts are compared."""
        return ""

    async def ready(self) -> None:
        """Return at once, because no texts are compared."""

    @asynccontextmanager
    async def collections(self, settings: CacheSettings, embedder: Embedder) -> AsyncIterator[AuxiliaryServices]:
        """No further services."""
        yield AuxiliaryServices(NoCollections(), NoTools())


async def load(settings: CacheSettings) -> ExactOnly:
    """See `parts.py`. There is nothing to load."""
    return ExactOnly()
