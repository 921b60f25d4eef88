"""Collections of documents, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a document that is understandable alone."""

    text: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class CollectionPut:
    """The result of putting a document."""

    unchanged: bool  # the same document was stored before
    snippets: int  # how many it has
    embedded: int  # how many of them were embedded now


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection."""

    name: str
    description: str  # as models read it
    documents: int
    snippets: int
    bytes: int  # of its texts
    waiting: int  # snippets of another embedder: until they are embedded again, only words find them


@dataclass(frozen=True, slots=True)
class CollectionDocument:
    """A document without its text."""

    source: str
    title: str
    snippets: int
    bytes: int
    changed_at_ms: int  # Unix time


@dataclass(frozen=True, slots=True)
class CollectionHit:
    """A snippet that was found."""

    source: str  # its document
    title: str  # the headings above it, outermost first
    text: str  # as in the document
    score: float  # 1: the first by meaning and by words
    similarity: float | None  # cosine, 0 to 1; None: not found by meaning
    ordinal: int  # which snippet of its document it is, from 0


@dataclass(frozen=True, slots=True)
class CollectionSearch:
    """The result of a search, best hit first."""

    hits: tuple[CollectionHit, ...]
    words_only: bool  # only words were searched: the question was too long to embed, or the deadline near
