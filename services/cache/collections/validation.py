"""Validation of requests. Each check names the field, the limit and the value."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hedgerow.collection.v1 import collection_pb2 as pb
from services.cache.collections.documents import Document, Format, Passage
from services.cache.collections.settings import CollectionSettings
from services.runtime.errors import InvalidInput

MAX_HITS, PAGE = 50, 1000  # the contract's, as is all that follows
_HITS = 5
_NAME = re.compile(r"[A-Za-z0-9_-]{1,57}")  # with `search_` before it a tool's name, which has 64 at most
_SOURCE_BYTES, _TITLE_BYTES, _DESCRIPTION_BYTES, _QUESTION_BYTES = 1024, 1024, 1024, 8 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MARKDOWN = (".md", ".markdown")
_FORMATS = {pb.FORMAT_PLAIN: Format.PLAIN, pb.FORMAT_MARKDOWN: Format.MARKDOWN}


def check_tenant(tenant: str) -> str:
    if not tenant:
        raise InvalidInput("tenant", "at least 1 character", "none")
    return tenant


def check_name(name: str) -> str:
    """The name of a collection."""
    if not _NAME.fullmatch(name):
        raise InvalidInput("collection", "1 to 57 letters, digits, _ or -", name)
    return name


def check_description(description: str) -> str:
    return _line("description", description, _DESCRIPTION_BYTES)


def check_document(given: pb.Document, limits: CollectionSettings) -> Document:
    """A document that may be kept, if there is room."""
    source = check_source("document.source", given.source)
    passages = tuple(Passage(_title(each.title), each.text) for each in given.passages)
    document = Document(source, _title(given.title), given.text, _format(given, source), passages)
    if document.size > limits.max_document_bytes:
        raise InvalidInput("document", f"at most {limits.max_document_bytes} bytes", f"{document.size} bytes")
    if given.text and passages:
        raise InvalidInput("document.passages", "none together with a text", len(passages))
    if not passages:
        check_text("document.text", document.text)
    for number, passage in enumerate(passages):
        check_text(f"document.passages[{number}].text", passage.text)
    return document


def check_source(field: str, source: str) -> str:
    if not source:
        raise InvalidInput(field, "at least 1 character", "none")
    return _line(field, source, _SOURCE_BYTES)


def check_sources(sources: Sequence[str]) -> Sequence[str]:
    """1 to 1000 of them."""
    if not 1 <= len(sources) <= PAGE:
        raise InvalidInput("sources", f"1 to {PAGE}", len(sources))
    return [check_source(f"sources[{number}]", source) for number, source in enumerate(sources)]


def check_question(field: str, question: str) -> str:
    check_text(field, question)
    size = len(question.encode())
    if size > _QUESTION_BYTES:
        raise InvalidInput(field, f"at most {_QUESTION_BYTES} bytes", f"{size} bytes")
    return question


def check_limit(field: str, limit: int) -> int:
    """How many hits to return; 0 is the contract's default."""
    if not 0 <= limit <= MAX_HITS:
        raise InvalidInput(field, f"1 to {MAX_HITS}", limit)
    return limit or _HITS


def check_page_size(size: int) -> int:
    if not 0 <= size <= PAGE:
        raise InvalidInput("page_size", f"1 to {PAGE}", size)
    return size or PAGE


def check_text(field: str, text: str) -> None:
    """Words, and none of what only files have that are no text."""
    if not text.strip():
        raise InvalidInput(field, "text other than white space", f"{len(text)} characters")
    if (at := text.find("\0")) >= 0:
        raise InvalidInput(field, "text without NUL characters", f"one at {at}")


def _title(title: str) -> str:
    return _line("document.title", title, _TITLE_BYTES)


def _line(field: str, text: str, max_bytes: int) -> str:
    if len(text.encode()) > max_bytes:
        raise InvalidInput(field, f"at most {max_bytes} bytes", f"{len(text.encode())} bytes")
    if found := _CONTROL.search(text):
        raise InvalidInput(field, "no control characters", f"one at {found.start()}")
    return text


def _format(given: pb.Document, source: str) -> Format:
    guessed = Format.MARKDOWN if source.lower().endswith(_MARKDOWN) else Format.PLAIN
    return _FORMATS.get(given.format, guessed)
