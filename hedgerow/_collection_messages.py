"""Requests and responses of the collection clients. No I/O; both clients share it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hedgerow._collected import (
    Collection,
    CollectionDocument,
    CollectionHit,
    CollectionPut,
    CollectionSearch,
    Passage,
)
from hedgerow._fields import one_of, set_fields
from hedgerow._request import refuse_too_large
from hedgerow.collection.v1 import collection_pb2 as pb

DEFAULT_TARGET = "127.0.0.1:50051"
DEFAULT_TENANT = "local"  # the one tenant of a gateway without keys
DEFAULT_BUDGET_MS = 10_000
PUT_BUDGET_MS = 600_000  # a document of a megabyte is embedded in a minute or less
AT_ONCE = 1_000  # sources of one removal, and documents of one page; the contract's

_FORMATS = {"plain": pb.FORMAT_PLAIN, "markdown": pb.FORMAT_MARKDOWN}
_RANKINGS = {"both": pb.RANKING_UNSPECIFIED, "meaning": pb.RANKING_MEANING, "words": pb.RANKING_WORDS}


def put_request(
    tenant: str,
    collection: str,
    source: str,
    text: str,
    passages: Sequence[Passage],
    title: str,
    format: str | None,
    description: str,
) -> pb.PutDocumentRequest:
    request = pb.PutDocumentRequest()
    set_fields(request, "", tenant=tenant, collection=collection, description=description)
    set_fields(request.document, "document.", source=source, text=text, title=title)
    if format is not None:
        request.document.format = _FORMATS[one_of("format", format, _FORMATS)]
    for number, passage in enumerate(passages):
        place = f"document.passages[{number}]."
        set_fields(request.document.passages.add(), place, title=passage.title, text=passage.text)
    refuse_too_large(request, "put it as several documents")
    return request


def put(reply: pb.PutDocumentResponse) -> CollectionPut:
    return CollectionPut(reply.unchanged, reply.snippets, reply.embedded)


def remove_requests(tenant: str, collection: str, sources: Iterable[str]) -> list[pb.RemoveDocumentsRequest]:
    """As many as there have to be."""
    given = [sources] if isinstance(sources, str) else list(sources)
    return [
        pb.RemoveDocumentsRequest(tenant=tenant, collection=collection, sources=given[first : first + AT_ONCE])
        for first in range(0, len(given), AT_ONCE)
    ]


def search_request(tenant: str, collection: str, question: str, limit: int | None, ranking: str) -> pb.SearchRequest:
    request = pb.SearchRequest(ranking=_RANKINGS[one_of("ranking", ranking, _RANKINGS)])
    set_fields(request, "", tenant=tenant, collection=collection, question=question, limit=limit)
    return request


def search(reply: pb.SearchResponse) -> CollectionSearch:
    hits = (
        CollectionHit(
            each.source,
            each.title,
            each.text,
            each.score,
            each.similarity if each.HasField("similarity") else None,
            each.ordinal,
        )
        for each in reply.hits
    )
    return CollectionSearch(tuple(hits), reply.words_only)


def collections(reply: pb.ListCollectionsResponse) -> tuple[Collection, ...]:
    return tuple(
        Collection(each.name, each.description, each.documents, each.snippets, each.bytes, each.waiting)
        for each in reply.collections
    )


def documents(reply: pb.ListDocumentsResponse) -> list[CollectionDocument]:
    return [
        CollectionDocument(each.source, each.title, each.snippets, each.bytes, each.changed_at_ms)
        for each in reply.documents
    ]
