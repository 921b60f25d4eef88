"""`hedgerow.collection.v1.CollectionService`: proto in, proto out."""

from __future__ import annotations

from dataclasses import asdict

from hedgerow.collection.v1 import collection_pb2 as pb
from services.cache.collections import validation
from services.cache.collections.collections import Collections, SearchResult
from services.cache.collections.documents import Ranking
from services.cache.collections.settings import CollectionSettings
from services.runtime.errors import InvalidInput
from services.runtime.policy.waiting_bytes import WaitingBytes
from services.runtime.rpc.boundary import Call

_RANKINGS = {pb.RANKING_UNSPECIFIED: Ranking.BOTH, pb.RANKING_MEANING: Ranking.MEANING, pb.RANKING_WORDS: Ranking.WORDS}


class CollectionServicer:
    """The contract over collections. At most `max_waiting_bytes` of documents are put at once."""

    def __init__(self, collections: Collections, limits: CollectionSettings, max_waiting_bytes: int):
        self._collections, self._limits = collections, limits
        self._waiting = WaitingBytes(max_waiting_bytes)

    async def PutDocument(self, request: pb.PutDocumentRequest, call: Call) -> pb.PutDocumentResponse:
        tenant, name = _whose(request)
        document = validation.check_document(request.document, self._limits)
        description = validation.check_description(request.description)
        with self._waiting.hold(tenant, request.ByteSize()):
            put = await self._collections.put(tenant, name, document, description)
        call.span.set_attribute("hedgerow.collection.unchanged", put.unchanged)
        call.span.set_attribute("hedgerow.collection.embedded", put.embedded)
        return pb.PutDocumentResponse(unchanged=put.unchanged, snippets=put.snippets, embedded=put.embedded)

    async def RemoveDocuments(self, request: pb.RemoveDocumentsRequest, call: Call) -> pb.RemoveDocumentsResponse:
        tenant, name = _whose(request)
        sources = validation.check_sources(request.sources)
        return pb.RemoveDocumentsResponse(removed=await self._collections.remove(tenant, name, sources))

    async def ListDocuments(self, request: pb.ListDocumentsRequest, call: Call) -> pb.ListDocumentsResponse:
        tenant, name = _whose(request)
        count = validation.check_page_size(request.page_size)
        documents = await self._collections.documents(tenant, name, request.page_token, count)
        reply = pb.ListDocumentsResponse(next_page_token=documents[-1].source if len(documents) == count else "")
        for each in documents:
            reply.documents.add(**asdict(each))
        return reply

    async def ListCollections(self, request: pb.ListCollectionsRequest, call: Call) -> pb.ListCollectionsResponse:
        reply = pb.ListCollectionsResponse()
        for each in await self._collections.listed(validation.check_tenant(request.tenant)):
            reply.collections.add(**asdict(each))
        return reply

    async def Search(self, request: pb.SearchRequest, call: Call) -> pb.SearchResponse:
        tenant, name = _whose(request)
        question = validation.check_question("question", request.question)
        count = validation.check_limit("limit", request.limit)
        ranking = _RANKINGS.get(request.ranking)
        if ranking is None:
            raise InvalidInput("ranking", "a Ranking", request.ranking)
        return _found(await self._collections.search(tenant, name, question, count, ranking, call.deadline), call)

    async def DropCollection(self, request: pb.DropCollectionRequest, call: Call) -> pb.DropCollectionResponse:
        return pb.DropCollectionResponse(removed=await self._collections.drop(*_whose(request)))


def _whose(
    request: pb.PutDocumentRequest
    | pb.RemoveDocumentsRequest
    | pb.ListDocumentsRequest
    | pb.SearchRequest
    | pb.DropCollectionRequest,
) -> tuple[str, str]:
    return validation.check_tenant(request.tenant), validation.check_name(request.collection)


def _found(found: SearchResult, call: Call) -> pb.SearchResponse:
    call.span.set_attribute("hedgerow.collection.hits", len(found.hits))
    call.span.set_attribute("hedgerow.collection.words_only", found.words_only)
    reply = pb.SearchResponse(words_only=found.words_only)
    for hit in found.hits:
        reply.hits.add(**asdict(hit))
    return reply
