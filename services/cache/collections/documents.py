"""Documents of a collection, and hits of a search."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

from services.cache.vectors import Vector

CUT_BY = 3  # raised when the same document is cut in another way, so that it is not taken for unchanged


class Format(Enum):
    """How a document is written."""

    PLAIN = "plain"
    MARKDOWN = "markdown"


class Ranking(Enum):
    """The ranking of a search."""

    BOTH = "both"
    MEANING = "meaning"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class Passage:
    """A part that stands for itself."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Something to be found in: one text, or passages that the caller has cut."""

    source: str
    title: str
    text: str
    format: Format
    passages: tuple[Passage, ...] = ()

    @property
    def size(self) -> int:
        """The size of its text, in bytes of UTF-8."""
        parts = (self.title, self.text, *(part for each in self.passages for part in (each.title, each.text)))
        return sum(len(part.encode()) for part in parts)

    def digest(self, max_tokens: int) -> bytes:
        """A digest that differs where a document would become other snippets, of at most `max_tokens` each."""
        parts = [self.format.value, self.title, self.text]
        parts += [part for passage in self.passages for part in (passage.title, passage.text)]
        hasher = hashlib.sha256(f"{CUT_BY}:{max_tokens}".encode())
        for part in parts:
            hasher.update(f":{len(part)}:{part}".encode())
        return hasher.digest()


@dataclass(frozen=True, slots=True)
class Snippet:
    """A part of a document, as it stands there, and the headings that it stands under."""

    title: str
    text: str
    lead: str  # as much of the title as there is room for, to be searched with the text

    @property
    def searched(self) -> str:
        """The text that is embedded and indexed."""
        return self.lead + self.text

    @property
    def checksum(self) -> bytes:
        return hashlib.sha256(self.searched.encode()).digest()


@dataclass(frozen=True, slots=True)
class Cut:
    """A document that is ready to be kept. `vectors`: one for each snippet."""

    source: str
    title: str
    digest: bytes
    bytes: int
    snippets: tuple[Snippet, ...]
    vectors: tuple[Vector, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of a collection."""

    name: str
    description: str
    documents: int
    snippets: int
    bytes: int
    waiting: int  # snippets whose vectors another engine has made


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """The data on a document besides its text."""

    source: str
    title: str
    snippets: int
    bytes: int
    changed_at_ms: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A snippet that was found. `similarity` is None where meaning did not find it."""

    source: str
    title: str
    text: str
    ordinal: int
    score: float
    similarity: float | None
