from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_UNSPECIFIED: _ClassVar[Format]
    FORMAT_PLAIN: _ClassVar[Format]
    FORMAT_MARKDOWN: _ClassVar[Format]

class Ranking(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RANKING_UNSPECIFIED: _ClassVar[Ranking]
    RANKING_MEANING: _ClassVar[Ranking]
    RANKING_WORDS: _ClassVar[Ranking]
FORMAT_UNSPECIFIED: Format
FORMAT_PLAIN: Format
FORMAT_MARKDOWN: Format
RANKING_UNSPECIFIED: Ranking
RANKING_MEANING: Ranking
RANKING_WORDS: Ranking

class Document(_message.Message):
    __slots__ = ("source", "title", "text", "format", "passages")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    source: str
    title: str
    text: str
    format: Format
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    def __init__(self, source: _Optional[str] = ..., title: _Optional[str] = ..., text: _Optional[str] = ..., format: _Optional[_Union[Format, str]] = ..., passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("title", "text")
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    title: str
    text: str
    def __init__(self, title: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class PutDocumentRequest(_message.Message):
    __slots__ = ("tenant", "collection", "document", "description")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    collection: str
    document: Document
    description: str
    def __init__(self, tenant: _Optional[str] = ..., collection: _Optional[str] = ..., document: _Optional[_Union[Document, _Mapping]] = ..., description: _Optional[str] = ...) -> None: ...

class PutDocumentResponse(_message.Message):
    __slots__ = ("unchanged", "snippets", "embedded")
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    SNIPPETS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDED_FIELD_NUMBER: _ClassVar[int]
    unchanged: bool
    snippets: int
    embedded: int
    def __init__(self, unchanged: _Optional[bool] = ..., snippets: _Optional[int] = ..., embedded: _Optional[int] = ...) -> None: ...

class RemoveDocumentsRequest(_message.Message):
    __slots__ = ("tenant", "collection", "sources")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    collection: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., collection: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ...) -> None: ...

class RemoveDocumentsResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: int
    def __init__(self, removed: _Optional[int] = ...) -> None: ...

class ListDocumentsRequest(_message.Message):
    __slots__ = ("tenant", "collection", "page_size", "page_token")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    collection: str
    page_size: int
    page_token: str
    def __init__(self, tenant: _Optional[str] = ..., collection: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDocumentsResponse(_message.Message):
    __slots__ = ("documents", "next_page_token")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    documents: _containers.RepeatedCompositeFieldContainer[DocumentSummary]
    next_page_token: str
    def __init__(self, documents: _Optional[_Iterable[_Union[DocumentSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DocumentSummary(_message.Message):
    __slots__ = ("source", "title", "snippets", "bytes", "changed_at_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SNIPPETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    title: str
    snippets: int
    bytes: int
    changed_at_ms: int
    def __init__(self, source: _Optional[str] = ..., title: _Optional[str] = ..., snippets: _Optional[int] = ..., bytes: _Optional[int] = ..., changed_at_ms: _Optional[int] = ...) -> None: ...

class ListCollectionsRequest(_message.Message):
    __slots__ = ("tenant",)
    TENANT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    def __init__(self, tenant: _Optional[str] = ...) -> None: ...

class ListCollectionsResponse(_message.Message):
    __slots__ = ("collections",)
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedCompositeFieldContainer[Collection]
    def __init__(self, collections: _Optional[_Iterable[_Union[Collection, _Mapping]]] = ...) -> None: ...

class Collection(_message.Message):
    __slots__ = ("name", "description", "documents", "snippets", "bytes", "waiting")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    SNIPPETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    documents: int
    snippets: int
    bytes: int
    waiting: int
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., documents: _Optional[int] = ..., snippets: _Optional[int] = ..., bytes: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("tenant", "collection", "question", "limit", "ranking")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    collection: str
    question: str
    limit: int
    ranking: Ranking
    def __init__(self, tenant: _Optional[str] = ..., collection: _Optional[str] = ..., question: _Optional[str] = ..., limit: _Optional[int] = ..., ranking: _Optional[_Union[Ranking, str]] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("hits", "words_only")
    HITS_FIELD_NUMBER: _ClassVar[int]
    WORDS_ONLY_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[Hit]
    words_only: bool
    def __init__(self, hits: _Optional[_Iterable[_Union[Hit, _Mapping]]] = ..., words_only: _Optional[bool] = ...) -> None: ...

class Hit(_message.Message):
    __slots__ = ("source", "title", "text", "score", "similarity", "ordinal")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    source: str
    title: str
    text: str
    score: float
    similarity: float
    ordinal: int
    def __init__(self, source: _Optional[str] = ..., title: _Optional[str] = ..., text: _Optional[str] = ..., score: _Optional[float] = ..., similarity: _Optional[float] = ..., ordinal: _Optional[int] = ...) -> None: ...

class DropCollectionRequest(_message.Message):
    __slots__ = ("tenant", "collection")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    collection: str
    def __init__(self, tenant: _Optional[str] = ..., collection: _Optional[str] = ...) -> None: ...

class DropCollectionResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: int
    def __init__(self, removed: _Optional[int] = ...) -> None: ...
