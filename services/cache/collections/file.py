"""The storage of collections: one SQLite file, and an in-memory index of its vectors.

One connection writes and one reads, each on its own thread. SQLite's WAL gives the reader a consistent snapshot; the
index has no snapshots. So a change is committed and added to the index under one lock, and a search takes its snapshot
of both under the same lock: it sees the old or the new version of a document, and no mixture.

FTS5 indexes words, with one table for each collection: BM25 counts how rare a word is, and that must not reveal other
collections' texts. Sources: https://www.sqlite.org/wal.html; https://www.sqlite.org/fts5.html
"""

from __future__ import annotations

import fcntl
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock

import numpy as np

from hedgerow.private import open_private
from services.cache.database import check_header, make_private, prepare
from services.cache.errors import DatabaseRefused
from services.cache.vectors import Vector, VectorIndex

_APPLICATION_ID = 0x4844474B  # `HDGK`: marks the file as one of collections
_VERSION = 1
_AT_ONCE = 10_000  # vectors that are read at a time
_SCHEMA = """
CREATE TABLE collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again, so that what was dropped cannot be taken for what is new
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    documents INTEGER NOT NULL,
    snippets INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    UNIQUE (tenant, name)
);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL,
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    digest BLOB NOT NULL,
    snippets INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    embedded_by TEXT NOT NULL,
    UNIQUE (collection, source)
);
CREATE TABLE snippets (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- likewise
    document INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    lead TEXT NOT NULL,
    checksum BLOB NOT NULL,
    embedding BLOB NOT NULL  -- little-endian float16, as they are in the index
);
CREATE INDEX snippets_by_document ON snippets (document, ordinal);
"""


def words_table(collection: int) -> str:
    """The name of the FTS5 table of a collection."""
    return f"words_{collection}"


def partition(collection: int) -> bytes:
    """The index partition of a collection."""
    return str(collection).encode()


def packed(vector: Vector) -> bytes:
    """A vector in the format of the disk."""
    return vector.astype("<f2").tobytes()


def unpacked(stored: bytes) -> Vector:
    """A vector from the disk."""
    return np.frombuffer(stored, "<f2").astype(np.float32)


class CollectionFile:
    """An open file. Without a `path`, a temporary one.

    `writer` and `reader` are each for one thread, `vectors` for the holder of `change`.
    """

    def __init__(self, path: str, dimension: int):
        """Open the file, or create it. Raises `DatabaseRefused` if it is not usable, and then does not change it."""
        self.change, self.vectors = Lock(), VectorIndex(dimension)
        self.path, self.lasting = path, bool(path)
        with ExitStack() as stack:
            try:
                self._open(path or f"{stack.enter_context(tempfile.TemporaryDirectory())}/collections.db", stack)
            except (OSError, sqlite3.Error, DatabaseRefused) as error:
                raise DatabaseRefused(f"collections_database {path}: {error}; nothing in it was changed") from error
            self._opened = stack.pop_all()

    def _open(self, path: str, stack: ExitStack) -> None:
        check_header(Path(path), _APPLICATION_ID)
        make_private(Path(path))
        stack.enter_context(_owned(path))
        self.writer, self.reader = (_connected(path, stack) for _ in range(2))
        _prepare(self.writer)

    def load(self, embedded_by: str) -> int:
        """Load the vectors by `embedded_by` into the index. Returns their number."""
        read = (
            "SELECT s.id, s.embedding FROM documents d JOIN snippets s ON s.document = d.id "
            "WHERE d.collection = ? AND d.embedded_by = ?"
        )
        collections = self.writer.execute("SELECT id FROM collections").fetchall()
        for (collection,) in collections:
            rows = self.writer.execute(read, (collection, embedded_by))
            while some := rows.fetchmany(_AT_ONCE):
                self.vectors.add(partition(collection), [(str(id_), unpacked(stored)) for id_, stored in some])
        return len(self.vectors)

    def close(self) -> None:
        """Close the file; committed changes stay in it."""
        self._opened.close()


@contextmanager
def _owned(path: str) -> Iterator[None]:
    """Lock the file for this process: the index would not follow another process's changes."""
    with open(f"{path}.lock", "w", opener=open_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DatabaseRefused("another process has it open") from None
        yield


def _connected(path: str, stack: ExitStack) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
    stack.callback(connection.close)
    return connection


def _prepare(writer: sqlite3.Connection) -> None:
    prepare(writer, _SCHEMA, _APPLICATION_ID, _VERSION)
    writer.execute("PRAGMA wal_autocheckpoint = 0")  # the writer does checkpoints, so that no search waits for one
