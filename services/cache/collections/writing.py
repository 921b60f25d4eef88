"""Changes of collections. Each is one transaction, and appears in the file and in the index at the same time."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from services.cache.collections.documents import Cut
from services.cache.collections.file import CollectionFile, packed, partition, unpacked, words_table
from services.cache.collections.settings import CollectionSettings
from services.cache.errors import CollectionFull, Dropped, NoCollection, NotKept
from services.cache.vectors import Vector
from services.runtime.line_limit import LineLimit

_MOVED_AT_ONCE = 1_000  # snippets, some megabytes
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Before:
    """The document's former state. `vectors`: those of its snippets, by checksum."""

    collection: int | None = None
    unchanged: int | None = None  # its number of snippets, if it is stored unchanged
    vectors: dict[bytes, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outdated:
    """A document with embeddings of another engine. `searched`: the texts of its snippets."""

    document: int
    tenant: str
    searched: tuple[str, ...]


@dataclass(slots=True)
class _Changes:
    """Changes of the index, by collection: removed snippets and added ones."""

    gone: list[tuple[int, list[str]]] = field(default_factory=list)
    come: list[tuple[int, list[tuple[str, Vector]]]] = field(default_factory=list)


class CollectionWriter:
    """The only writer of a file. Not thread-safe. `now_ms` is Unix time in milliseconds; `embedded_by` names the engine
    of new vectors."""

    def __init__(self, file: CollectionFile, limits: CollectionSettings, embedded_by: str, now_ms: Callable[[], int]):
        self._file, self._limits, self._embedded_by, self._now_ms = file, limits, embedded_by, now_ms
        self._unmoved, self._lines = 0, LineLimit()
        self._execute, self._many = file.writer.execute, file.writer.executemany

    def before(self, tenant: str, name: str, source: str, digest: bytes, description: str) -> Before:
        """The state of a document before it is put. An `unchanged` one need not be put. Raises `NotKept`."""
        with self._change():
            collection = self._find(tenant, name)
            if collection is None:
                return Before()
            if description:
                update = "UPDATE collections SET description = ? WHERE id = ? AND description != ?"
                self._execute(update, (description, collection, description))
            known = "SELECT id, digest, snippets FROM documents WHERE collection = ? AND source = ? AND embedded_by = ?"
            row = self._execute(known, (collection, source, self._embedded_by)).fetchone()
            if row is None:
                return Before(collection)
            if row[1] == digest:
                return Before(collection, unchanged=row[2])
            stored = self._execute("SELECT checksum, embedding FROM snippets WHERE document = ?", row[:1])
            return Before(collection, vectors={checksum: unpacked(vector) for checksum, vector in stored})

    def put(self, tenant: str, name: str, cut: Cut, description: str, begun: int | None) -> None:
        """Store a document, in place of one with the same source. `begun`: the collection's id at the beginning of the
        call. Raises `CollectionFull`, `Dropped` and `NotKept`; then nothing has changed."""
        with self._change() as changes:
            collection = self._find(tenant, name)
            if begun not in (None, collection):
                raise Dropped
            if collection is None:
                collection = self._make(tenant, name, description)
            self._remove(collection, [cut.source], changes)
            self._insert(collection, cut, changes)
            self._check(collection, tenant)

    def remove(self, tenant: str, name: str, sources: Sequence[str]) -> int:
        """Remove documents, and return how many there were. Raises `NoCollection` and `NotKept`."""
        with self._change() as changes:
            collection = self._find(tenant, name)
            if collection is None:
                raise NoCollection(name)
            return self._remove(collection, sources, changes)

    def drop(self, tenant: str, name: str) -> int:
        """Remove a collection, and return how many documents were in it. Raises `NotKept`."""
        with self._change() as changes:
            collection = self._find(tenant, name)
            if collection is None:
                return 0
            inside = "SELECT s.id FROM documents d JOIN snippets s ON s.document = d.id WHERE d.collection = ?"
            ids = [id_ for (id_,) in self._execute(inside, (collection,))]
            self._many("DELETE FROM snippets WHERE id = ?", [(id_,) for id_ in ids])
            removed = self._execute("DELETE FROM documents WHERE collection = ?", (collection,)).rowcount
            self._execute("DELETE FROM collections WHERE id = ?", (collection,))
            self._execute(f"DROP TABLE {words_table(collection)}")
            changes.gone.append((collection, [str(id_) for id_ in ids]))
            return removed

    def outdated(self) -> Outdated | None:
        """A document with vectors of another engine, if any. Raises `NotKept`."""
        which = "SELECT d.id, c.tenant FROM documents d JOIN collections c ON c.id = d.collection"
        with self._change():
            row = self._execute(f"{which} WHERE d.embedded_by != ? LIMIT 1", (self._embedded_by,)).fetchone()
            if row is None:
                return None
            read = self._execute("SELECT lead || text FROM snippets WHERE document = ? ORDER BY ordinal", row[:1])
            return Outdated(row[0], row[1], tuple(searched for (searched,) in read))

    def renew(self, outdated: Outdated, vectors: Sequence[Vector]) -> None:
        """Replace a document's vectors, unless the document was replaced meanwhile. Raises `NotKept`."""
        with self._change() as changes:
            read = "SELECT d.collection, s.id FROM documents d JOIN snippets s ON s.document = d.id"
            whose = "WHERE d.id = ? AND d.embedded_by != ? ORDER BY s.ordinal"
            rows = self._execute(f"{read} {whose}", (outdated.document, self._embedded_by)).fetchall()
            if len(rows) != len(vectors):
                return
            ids = [id_ for _, id_ in rows]
            update = "UPDATE snippets SET embedding = ? WHERE id = ?"
            self._many(update, [(packed(vector), id_) for id_, vector in zip(ids, vectors, strict=True)])
            self._execute("UPDATE documents SET embedded_by = ? WHERE id = ?", (self._embedded_by, outdated.document))
            changes.come.append((rows[0][0], list(zip(map(str, ids), vectors, strict=True))))

    @contextmanager
    def _change(self) -> Iterator[_Changes]:
        """One transaction. The index changes together with the commit, under one lock."""
        changes = _Changes()
        try:
            self._execute("BEGIN IMMEDIATE")
            try:
                yield changes
                with self._file.change:
                    self._execute("COMMIT")
                    self._apply(changes)
                self._tidy(changes)
            except BaseException:
                if self._file.writer.in_transaction:
                    self._execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            if (left_out := self._lines.take()) is not None:
                text = "collections_database %s: a change failed, and %d before since the last line: %s"
                _log.error(text, self._file.path, left_out, error)
            raise NotKept("the cache could not write to its disk") from None

    def _tidy(self, changes: _Changes) -> None:
        """Move committed changes from the WAL into the file, at intervals, while searches continue."""
        self._unmoved += sum(len(keys) for _, keys in changes.gone) + sum(len(some) for _, some in changes.come)
        if self._unmoved < _MOVED_AT_ONCE:
            return
        try:
            self._execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._unmoved = 0
        except sqlite3.Error as error:  # committed changes are safe in the WAL
            _log.warning("collections stay in the WAL for now: %s", error)

    def _apply(self, changes: _Changes) -> None:
        for collection, keys in changes.gone:
            self._file.vectors.remove(partition(collection), keys)
        for collection, vectors in changes.come:
            if vectors:
                self._file.vectors.add(partition(collection), vectors)

    def _find(self, tenant: str, name: str) -> int | None:
        row = self._execute("SELECT id FROM collections WHERE tenant = ? AND name = ?", (tenant, name)).fetchone()
        return row and int(row[0])

    def _make(self, tenant: str, name: str, description: str) -> int:
        insert = "INSERT INTO collections VALUES (NULL, ?, ?, ?, 0, 0, 0)"
        collection = self._execute(insert, (tenant, name, description)).lastrowid
        assert collection is not None
        # Contentless: the words are in `snippets`. Porter's stemmer is for English, and leaves other words alone.
        how = "content='', tokenize='porter unicode61 remove_diacritics 2'"
        self._execute(f"CREATE VIRTUAL TABLE {words_table(collection)} USING fts5(words, {how})")
        return collection

    def _remove(self, collection: int, sources: Iterable[str], changes: _Changes) -> int:
        removed = 0
        which = "SELECT id, snippets, bytes FROM documents WHERE collection = ? AND source = ?"
        for source in sources:
            if row := self._execute(which, (collection, source)).fetchone():
                changes.gone.append((collection, self._remove_snippets(collection, row[0])))
                self._execute("DELETE FROM documents WHERE id = ?", row[:1])
                self._count(collection, -1, -row[1], -row[2])
                removed += 1
        return removed

    def _remove_snippets(self, collection: int, document: int) -> list[str]:
        rows = self._execute("SELECT id, lead || text FROM snippets WHERE document = ?", (document,)).fetchall()
        words = words_table(collection)
        self._many(f"INSERT INTO {words} ({words}, rowid, words) VALUES ('delete', ?, ?)", rows)
        self._execute("DELETE FROM snippets WHERE document = ?", (document,))
        return [str(id_) for id_, _ in rows]

    def _insert(self, collection: int, cut: Cut, changes: _Changes) -> None:
        row = (collection, cut.source, cut.title, cut.digest, len(cut.snippets), cut.bytes)
        insert = "INSERT INTO documents VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)"
        document = self._execute(insert, (*row, self._now_ms(), self._embedded_by)).lastrowid
        come: list[tuple[str, Vector]] = []
        for ordinal, (snippet, vector) in enumerate(zip(cut.snippets, cut.vectors, strict=True)):
            columns = (document, ordinal, snippet.title, snippet.text, snippet.lead, snippet.checksum, packed(vector))
            id_ = self._execute("INSERT INTO snippets VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", columns).lastrowid
            words = f"INSERT INTO {words_table(collection)} (rowid, words) VALUES (?, ?)"
            self._execute(words, (id_, snippet.searched))
            come.append((str(id_), vector))
        changes.come.append((collection, come))
        self._count(collection, 1, len(cut.snippets), cut.bytes)

    def _count(self, collection: int, documents: int, snippets: int, size: int) -> None:
        more = "documents = documents + ?, snippets = snippets + ?, bytes = bytes + ?"
        self._execute(f"UPDATE collections SET {more} WHERE id = ?", (documents, snippets, size, collection))

    def _check(self, collection: int, tenant: str) -> None:
        """Raise `CollectionFull` if a limit is exceeded now."""
        counts = "SELECT name, documents, snippets, bytes FROM collections WHERE id = ?"
        name, documents, snippets, size = self._execute(counts, (collection,)).fetchone()
        of_tenant = "SELECT count(*), sum(bytes) FROM collections WHERE tenant = ?"
        collections, tenants_size = self._execute(of_tenant, (tenant,)).fetchone()
        held = self._execute("SELECT sum(snippets) FROM collections").fetchone()[0]
        limits, here = self._limits, f"collection {name}"
        for what, limit, unit, value in (
            (here, limits.max_documents, "documents", documents),
            (here, limits.max_snippets, "snippets", snippets),
            (here, limits.max_bytes, "bytes", size),
            ("the tenant's collections", limits.max_collections, "collections", collections),
            ("the tenant's collections", limits.tenant_bytes, "bytes", tenants_size),
            ("all collections here", limits.max_snippets_held, "snippets", held),
        ):
            if value > limit:
                raise CollectionFull(what, f"at most {limit} {unit}", value)
