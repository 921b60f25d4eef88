"""Collections of documents, by tenant and name.

One thread makes all changes, and another one all searches; tenants take turns on each. A change is atomic, and is
on disk before its caller gets the reply.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from services.cache.collections.background_embedding import BackgroundEmbedder
from services.cache.collections.chunking import Length, cut, title_of
from services.cache.collections.documents import Cut, Document, DocumentSummary, Hit, Ranking, Snippet, Summary
from services.cache.collections.file import CollectionFile
from services.cache.collections.reading import CollectionReader
from services.cache.collections.settings import CollectionSettings
from services.cache.collections.writing import Before, CollectionWriter
from services.cache.embedding import Embedder
from services.cache.errors import CollectionFull
from services.cache.vectors import Vector, scan_on_one_core
from services.runtime.deadline import Deadline
from services.runtime.errors import Exhausted, ServiceError
from services.runtime.policy.fair_thread import FairThread

_MAX_WAITING = 1_000  # looks into collections
_PAUSE_S = 5.0  # after what the disk or the embedder refused
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PutResult:
    """The result of putting a document. `embedded`: those of its snippets that had to be."""

    unchanged: bool
    snippets: int
    embedded: int = 0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Best first. `words_only`: though meaning was to be gone by."""

    hits: Sequence[Hit]
    words_only: bool


@dataclass(slots=True)
class CollectionStats:
    """Counts since the start."""

    searches: int = 0
    words_only: int = 0
    empty: int = 0
    puts: int = 0
    unchanged: int = 0
    kept: int = 0  # snippets whose vectors were there already


class Collections:
    """The operations of callers. `embedder` embeds questions, `behind` snippets; both are one model, whose pieces
    `length` counts. `run()` embeds documents of another model again."""

    def __init__(
        self,
        file: CollectionFile,
        embedder: Embedder,
        background: BackgroundEmbedder,
        length: Length,
        limits: CollectionSettings,
        now_ms: Callable[[], int],
    ):
        self.stats, self.background = CollectionStats(), background
        self._file, self._embedder, self._length, self._limits = file, embedder, length, limits
        self._writer, self._reader = (
            CollectionWriter(file, limits, embedder.name, now_ms),
            CollectionReader(file, embedder.name),
        )
        self._writes = FairThread("collect", sys.maxsize)  # bytes limit what waits
        self._reads = FairThread("search", _MAX_WAITING, scan_on_one_core)
        self._warned = file.lasting

    @property
    def snippets(self) -> int:
        """How many can be found by meaning."""
        return len(self._file.vectors)

    async def put(self, tenant: str, name: str, document: Document, description: str = "") -> PutResult:
        """Keep a document, in place of any of the same source, and return when it is found and on disk.

        Raises `CollectionFull`, `Dropped`, `NotKept`, and `Exhausted` when too much waits for the embedder: then what
        was there before is there still.
        """
        self._warn()
        digest = document.digest(self._limits.snippet_tokens)
        before = await self._writes.run(
            tenant, partial(self._writer.before, tenant, name, document.source, digest, description)
        )
        self.stats.puts += 1
        if before.unchanged is not None:
            self.stats.unchanged += 1
            return PutResult(True, before.unchanged)
        title, snippets = await self._writes.run(tenant, partial(self._cut, document))
        vectors, embedded = await self._embed(tenant, snippets, before)
        ready = Cut(document.source, title, digest, document.size, snippets, vectors)
        await self._writes.run(tenant, partial(self._writer.put, tenant, name, ready, description, before.collection))
        return PutResult(False, len(snippets), embedded)

    async def remove(self, tenant: str, name: str, sources: Sequence[str]) -> int:
        """Remove documents, and return how many there were. Raises `NoCollection` and `NotKept`."""
        return await self._writes.run(tenant, partial(self._writer.remove, tenant, name, sources))

    async def drop(self, tenant: str, name: str) -> int:
        """Remove a collection, and return how many documents were in it. Raises `NotKept`."""
        return await self._writes.run(tenant, partial(self._writer.drop, tenant, name))

    async def listed(self, tenant: str) -> list[Summary]:
        """A tenant's collections by name."""
        return await self._reads.run(tenant, partial(self._reader.collections, tenant))

    async def documents(self, tenant: str, name: str, after: str, count: int) -> list[DocumentSummary]:
        """Up to `count` documents in the order of their sources, from the one after `after`. Raises `NoCollection`."""
        return await self._reads.run(tenant, partial(self._reader.documents, tenant, name, after, count))

    async def search(
        self, tenant: str, name: str, question: str, count: int, ranking: Ranking, deadline: Deadline
    ) -> SearchResult:
        """Up to `count` snippets, best first. Raises `NoCollection`, and `Exhausted` when too much waits."""
        vector = None if ranking is Ranking.WORDS else await self._question(question, tenant, deadline)
        look = partial(self._reader.search, tenant, name, question, vector, ranking, count)
        hits = await self._reads.run(tenant, look)
        found = SearchResult(hits, ranking is not Ranking.WORDS and vector is None)
        self.stats.searches += 1
        self.stats.words_only += found.words_only
        self.stats.empty += not hits
        return found

    async def run(self) -> None:
        """Embed documents of another engine again, one by one; then there is nothing left to do."""
        count, left = 0, True
        while left:
            try:
                left = await self._renew()
                count += left
            except ServiceError as error:
                _log.warning("documents cannot be embedded again: %s", error)
                await asyncio.sleep(_PAUSE_S)
        if count:
            _log.info("%d documents embedded again", count)

    def close(self) -> None:
        """End the threads and close the file. Nothing may be asked of collections any more."""
        self.background.close()
        self._reads.close()
        self._writes.close()
        self._file.close()

    async def _renew(self) -> bool:
        """Embed one document again, and say whether there was any."""
        outdated = await self._writes.run("", self._writer.outdated)
        if outdated:
            vectors = await self.background.embed(outdated.searched, outdated.tenant)
            await self._writes.run(outdated.tenant, partial(self._writer.renew, outdated, vectors))
        return outdated is not None

    def _cut(self, document: Document) -> tuple[str, tuple[Snippet, ...]]:
        """A document's title and its snippets. Raises `CollectionFull`."""
        most = self._limits.max_document_snippets
        snippets: list[Snippet] = []
        for snippet in cut(document, self._length, self._limits.snippet_tokens):
            snippets.append(snippet)
            if len(snippets) > most:
                raise CollectionFull("document", f"at most {most} snippets", len(snippets))
        return title_of(document), tuple(snippets)

    async def _embed(self, tenant: str, snippets: Sequence[Snippet], before: Before) -> tuple[tuple[Vector, ...], int]:
        """A vector for each snippet, and how many had to be made."""
        known = dict(before.vectors)
        new = {snippet.checksum: snippet.searched for snippet in snippets if snippet.checksum not in known}
        made = await self.background.embed(list(new.values()), tenant) if new else []
        known |= zip(new, made, strict=True)
        self.stats.kept += len(snippets) - len(new)
        return tuple(known[snippet.checksum] for snippet in snippets), len(new)

    async def _question(self, question: str, tenant: str, deadline: Deadline) -> Vector | None:
        """The vector of a question; None if the question is too long, or embedding it would take more than half of the
        time left."""
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(None if remaining == float("inf") else remaining / 2):
                return await self._embedder.embed(question, tenant)
        except (TimeoutError, Exhausted):
            return None

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("collections_database is not set: what is put is forgotten when this process ends")
