"""Looks into collections. Each look sees one state of the file and, for a search, the same state of the index."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from services.cache.collections.documents import DocumentSummary, Hit, Ranking, Summary
from services.cache.collections.file import CollectionFile, partition, words_table
from services.cache.errors import NoCollection
from services.cache.vectors import Vector

_CANDIDATES = 50  # of each ranking: the right one may be far down in one of them
_K = 60  # the paper's: how little the first positions of a ranking count above the next ones
_MAX_WORDS = 64  # of a question; the rest says little that these do not
# Every snippet that has one of the words is scored. In a collection of more than so many the commonest words are left
# out, which say least and cost most: of 18,000 short texts as many were found, in half of the time.
_MAX_SCORED = 5_000
_BETWEEN_WORDS = re.compile(r"[\s\0!-/:-@\[-`{-~\u2000-\u206f\u3000-\u303f]+")


class CollectionReader:
    """Reads a file. Not thread-safe."""

    def __init__(self, file: CollectionFile, embedded_by: str):
        self._file, self._embedded_by, self._execute = file, embedded_by, file.reader.execute

    def collections(self, tenant: str) -> list[Summary]:
        """A tenant's, by name."""
        waiting = (
            "SELECT coalesce(sum(d.snippets), 0) FROM documents d WHERE d.collection = c.id AND d.embedded_by != ?"
        )
        columns = f"name, description, documents, snippets, bytes, ({waiting})"
        found = f"SELECT {columns} FROM collections c WHERE tenant = ? ORDER BY name"
        with self._snapshot():
            return [Summary(*row) for row in self._execute(found, (self._embedded_by, tenant))]

    def documents(self, tenant: str, name: str, after: str, count: int) -> list[DocumentSummary]:
        """Up to `count` in the order of their sources, from the one that follows `after`. Raises `NoCollection`."""
        columns = "source, title, snippets, bytes, changed_at_ms"
        found = f"SELECT {columns} FROM documents WHERE collection = ? AND source > ? ORDER BY source LIMIT ?"
        with self._snapshot():
            return [DocumentSummary(*row) for row in self._execute(found, (self._find(tenant, name)[0], after, count))]

    def search(
        self, tenant: str, name: str, question: str, vector: Vector | None, ranking: Ranking, count: int
    ) -> list[Hit]:
        """Up to `count` snippets, best first; by words alone without a `vector`. Raises `NoCollection`."""
        with self._snapshot():
            with self._file.change:
                collection, size = self._find(tenant, name)
                near = self._near(collection, vector)
            rankings = [] if vector is None else [list(near)]
            if ranking is not Ranking.MEANING:
                rankings.append(self._with_words(collection, size, question))
            return [self._hit(id_, score, near.get(id_)) for id_, score in fused(rankings)[:count]]

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """A snapshot of the file, from the first read on."""
        self._execute("BEGIN")
        try:
            yield
        finally:
            self._execute("COMMIT")

    def _find(self, tenant: str, name: str) -> tuple[int, int]:
        """A collection's id, and how many snippets it has."""
        found = "SELECT id, snippets FROM collections WHERE tenant = ? AND name = ?"
        row: tuple[int, int] | None = self._execute(found, (tenant, name)).fetchone()
        if row is None:
            raise NoCollection(name)
        return row

    def _near(self, collection: int, vector: Vector | None) -> dict[int, float]:
        """Cosine similarities, the nearest first."""
        if vector is None:
            return {}
        found = self._file.vectors.nearest(partition(collection), vector, _CANDIDATES)
        return {int(key): similarity for key, similarity in found}

    def _with_words(self, collection: int, size: int, question: str) -> list[int]:
        """The snippets with words of the question, ranked by BM25."""
        words = _quoted(question)
        if size > _MAX_SCORED:
            words = self._telling(collection, words)
        if not words:
            return []
        table = words_table(collection)
        found = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"
        return [id_ for (id_,) in self._execute(found, (" OR ".join(words), _CANDIDATES))]

    def _telling(self, collection: int, words: Sequence[str]) -> list[str]:
        """The rarest of the words, as many as together are in no more than `_MAX_SCORED` snippets; one at least."""
        table = words_table(collection)
        count = f"SELECT count(*) FROM {table} WHERE {table} MATCH ?"
        by_rarity = sorted((self._execute(count, (word,)).fetchone()[0], word) for word in words)
        kept: list[str] = []
        scored = 0
        for snippets, word in by_rarity:
            scored += snippets
            if snippets and (not kept or scored <= _MAX_SCORED):
                kept.append(word)
        return kept

    def _hit(self, id_: int, score: float, similarity: float | None) -> Hit:
        found = "SELECT d.source, s.title, s.text, s.ordinal FROM snippets s JOIN documents d ON d.id = s.document"
        source, title, text, ordinal = self._execute(f"{found} WHERE s.id = ?", (id_,)).fetchone()
        return Hit(source, title, text, ordinal, score, similarity)


def _quoted(question: str) -> list[str]:
    """The words of a question in FTS5's syntax, each once."""
    words = dict.fromkeys(word for word in _BETWEEN_WORDS.split(question.lower()) if word)
    return [f'"{word}"' for word in list(words)[:_MAX_WORDS]]


def fused(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Several rankings made one by reciprocal rank fusion, which needs no scores that can be compared: each item of any
    ranking and its score, best first. 1 for one that is the first in all of them.

    Source: Cormack, Clarke and Büttcher, Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods, SIGIR 2009: https://doi.org/10.1145/1571941.1572114
    """
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for position, item in enumerate(ranking, 1):
            scores[item] += (_K + 1) / (_K + position) / len(rankings)
    return sorted(scores.items(), key=lambda scored: -scored[1])
