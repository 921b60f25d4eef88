"""The asyncio client of collections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from hedgerow import _collection_messages as messages
from hedgerow._base_aio import AsyncServiceClient
from hedgerow._collected import (
    Collection,
    CollectionDocument,
    CollectionPut,
    CollectionSearch,
    Passage,
)
from hedgerow._peer import Peer
from hedgerow._tls import Tls
from hedgerow.collection.v1 import collection_pb2, collection_pb2_grpc


class AsyncCollectionClient(AsyncServiceClient):
    """The collections of one tenant in a cache service, over one pooled connection that is opened when first used.

    Safe to share between tasks of one loop.

    Each replica of the service has its own collections: make a change at each of them. `budget_ms` limits the time of
    a call.
    """

    def __init__(
        self,
        target: str = messages.DEFAULT_TARGET,
        *,
        tenant: str = messages.DEFAULT_TENANT,
        default_budget_ms: int = messages.DEFAULT_BUDGET_MS,
        tls: Tls | None = None,
    ):
        super().__init__(Peer(target, None, "cache service", tls), collection_pb2_grpc.CollectionServiceStub)
        self._tenant, self._default_budget_ms = tenant, default_budget_ms

    async def put(
        self,
        collection: str,
        source: str,
        text: str = "",
        *,
        passages: Sequence[Passage] = (),
        title: str = "",
        format: Literal["plain", "markdown"] | None = None,
        description: str = "",
        budget_ms: int = messages.PUT_BUDGET_MS,
    ) -> CollectionPut:
        """Store a document, and replace the one of the same `source`. It is a text, which is split, or passages.

        When the call returns, the document is on disk and can be found. `format` follows from the source's ending
        unless it is given. `description` is the collection's purpose, for models.
        """
        request = messages.put_request(self._tenant, collection, source, text, passages, title, format, description)
        return messages.put(await self._call(self._stub.PutDocument, request, budget_ms / 1000))

    async def remove(self, collection: str, sources: Iterable[str], *, budget_ms: int | None = None) -> int:
        """Remove documents, and return their number. Raises `NotFound` for an unknown collection."""
        removed = 0
        for request in messages.remove_requests(self._tenant, collection, sources):
            removed += (await self._call(self._stub.RemoveDocuments, request, self._timeout_s(budget_ms))).removed
        return removed

    async def documents(self, collection: str, *, budget_ms: int | None = None) -> tuple[CollectionDocument, ...]:
        """The documents of a collection by source. Raises `NotFound` for an unknown collection."""
        request = collection_pb2.ListDocumentsRequest(tenant=self._tenant, collection=collection)
        found: list[CollectionDocument] = []
        while True:
            reply = await self._call(self._stub.ListDocuments, request, self._timeout_s(budget_ms))
            found += messages.documents(reply)
            request.page_token = reply.next_page_token
            if not request.page_token:
                return tuple(found)

    async def collections(self, *, budget_ms: int | None = None) -> tuple[Collection, ...]:
        """The tenant's collections by name."""
        request = collection_pb2.ListCollectionsRequest(tenant=self._tenant)
        reply = await self._call(self._stub.ListCollections, request, self._timeout_s(budget_ms))
        return messages.collections(reply)

    async def search(
        self,
        collection: str,
        question: str,
        *,
        limit: int | None = None,
        ranking: Literal["both", "meaning", "words"] = "both",
        budget_ms: int | None = None,
    ) -> CollectionSearch:
        """The best snippets for a question: `limit` of them, 5 by default, at most 50. Raises `NotFound` for an unknown
        collection."""
        request = messages.search_request(self._tenant, collection, question, limit, ranking)
        return messages.search(await self._call(self._stub.Search, request, self._timeout_s(budget_ms)))

    async def drop(self, collection: str, *, budget_ms: int | None = None) -> int:
        """Remove a collection, and return the number of its documents."""
        request = collection_pb2.DropCollectionRequest(tenant=self._tenant, collection=collection)
        reply = await self._call(self._stub.DropCollection, request, self._timeout_s(budget_ms))
        return int(reply.removed)

    def _timeout_s(self, budget_ms: int | None) -> float:
        return (self._default_budget_ms if budget_ms is None else budget_ms) / 1000
