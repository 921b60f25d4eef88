"""The entries on disk: one SQLite file in WAL mode, owned by one process and used by one of its threads.

With `synchronous=FULL` a commit survives a power failure, not only the end of the process; concurrent stores share
commits. Source: https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow.private import open_private, take_from_others
from services.cache.encryption import SEALED, Encryption, UnreadableEntry
from services.cache.entries import Entry, packed, unpacked
from services.cache.errors import DatabaseRefused
from services.cache.semantic_match.record import Row
from services.cache.semantic_match.traffic import Traffic
from services.cache.tombstones import Removal

if TYPE_CHECKING:
    from services.cache.vectors import Vector

Statement = tuple[str, Sequence[tuple[object, ...]]]  # SQL, and the parameters of each execution

_log = logging.getLogger(__name__)
APPLICATION_ID = 0x48444743  # `HDGC`: marks the file as ours
_VERSION = 1
_SCHEMA = """
CREATE TABLE entries (
    key TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    partition BLOB NOT NULL,
    asked TEXT NOT NULL,
    answer BLOB NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    used_at_ms INTEGER NOT NULL,
    embedded_by TEXT NOT NULL,
    embedding BLOB  -- little-endian float32; NULL where the question was too long to embed, and where it is encrypted
);
CREATE INDEX entries_by_tenant ON entries (tenant);
"""
# Separate tables, which older versions ignore: they write all columns of an entry by position, so it gets no new ones.
_ADDED = """
CREATE TABLE IF NOT EXISTS position (id INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tightened (key TEXT PRIMARY KEY, least_score REAL NOT NULL) WITHOUT ROWID;
-- Not when an entry is replaced: SQLite fires no such trigger then.
CREATE TRIGGER IF NOT EXISTS loosened AFTER DELETE ON entries BEGIN DELETE FROM tightened WHERE key = OLD.key; END;
CREATE TABLE IF NOT EXISTS worth (
    key TEXT PRIMARY KEY, uses INTEGER NOT NULL, priority REAL NOT NULL
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS worthless AFTER DELETE ON entries BEGIN DELETE FROM worth WHERE key = OLD.key; END;
-- One row: since then nothing was written in clear text.
CREATE TABLE IF NOT EXISTS sealed (id INTEGER PRIMARY KEY);
-- See `services.cache.semantic_match.record`.
CREATE TABLE IF NOT EXISTS verified_traffic (
    tenant TEXT NOT NULL,
    category TEXT NOT NULL,  -- empty: of none
    made_by TEXT NOT NULL,
    written_at_ms INTEGER NOT NULL,
    samples BLOB NOT NULL,
    lookups REAL NOT NULL,
    candidates REAL NOT NULL,
    recent_lookups REAL NOT NULL,
    recent_candidates REAL NOT NULL,
    threshold REAL NOT NULL,
    certified INTEGER NOT NULL,
    alarmed INTEGER NOT NULL,
    max_wrong REAL NOT NULL,
    PRIMARY KEY (tenant, category)
) WITHOUT ROWID;
"""


def insert(entry: Entry, embedded_by: str, vector: Vector | None, encryption: Encryption) -> Statement:
    """Insert an entry, or replace the one with its key."""
    asked, answer, embedding = encryption.seal(entry, packed(vector))
    columns = (entry.key, entry.tenant, entry.partition, asked, answer, entry.expires_at_ms)
    row = (*columns, entry.used_at_ms, embedded_by, embedding or None)
    return "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?)", [row]


def tighten(entry: Entry) -> Statement:
    """Raise the least score of a stored entry; a greater one stays."""
    sql = """INSERT INTO tightened SELECT key, ? FROM entries WHERE key = ?
        ON CONFLICT (key) DO UPDATE SET least_score = max(least_score, excluded.least_score)"""
    return sql, [(entry.least_score, entry.key)]


def delete(keys: Iterable[str]) -> Statement:
    """Delete entries by key."""
    return "DELETE FROM entries WHERE key = ?", [(key,) for key in keys]


def remove(removal: Removal) -> Statement:
    """Delete the entries of a removal."""
    given = {column: value for column in ("key", "tenant") if (value := getattr(removal, column))}
    return f"DELETE FROM entries WHERE {' AND '.join(f'{column} = ?' for column in given)}", [tuple(given.values())]


def touch(entries: Iterable[Entry]) -> Statement:
    """Write when entries were last used."""
    return "UPDATE entries SET used_at_ms = ? WHERE key = ?", [(entry.used_at_ms, entry.key) for entry in entries]


def verified(traffic: Traffic, made_by: str, at_ms: int, row: Row) -> Statement:
    """Replace a verification record."""
    return f"INSERT OR REPLACE INTO verified_traffic VALUES ({', '.join('?' * 13)})", [(*traffic, made_by, at_ms, *row)]


def keep_verified(most: int) -> Statement:
    """Keep at most `most` verification records: the newest of each tenant first, then the second newest of each, and so
    on, so that a tenant with many categories displaces no other tenant's records."""
    turn = "row_number() OVER (PARTITION BY tenant ORDER BY written_at_ms DESC)"
    kept = f"SELECT tenant, category FROM verified_traffic ORDER BY {turn}, written_at_ms DESC LIMIT ?"
    return f"DELETE FROM verified_traffic WHERE (tenant, category) NOT IN ({kept})", [(most,)]


def forget(tenant: str) -> Statement:
    """Delete all verification records of a tenant."""
    return "DELETE FROM verified_traffic WHERE tenant = ?", [(tenant,)]


def worth(entries: Iterable[Entry]) -> Statement:
    """Write the use counts and priorities of entries."""
    return "INSERT OR REPLACE INTO worth VALUES (?, ?, ?)", [(each.key, each.uses, each.priority) for each in entries]


def sequence(last: int) -> Statement:
    """Replace the last sequence number."""
    return "INSERT OR REPLACE INTO position VALUES (0, ?)", [(last,)]


def prepare(connection: sqlite3.Connection, schema: str, application_id: int, version: int) -> None:
    """Create the tables in an empty file, or check that a file is of this version and undamaged. Commits survive a
    power failure. Raises `DatabaseRefused`."""
    execute = connection.execute
    if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        # Before WAL, so that the header of the file itself has the application id.
        marks = f"PRAGMA application_id = {application_id}; PRAGMA user_version = {version};"
        connection.executescript(f"BEGIN IMMEDIATE; {schema} {marks} COMMIT;")
    found = execute("PRAGMA user_version").fetchone()[0]
    if found != version:
        raise DatabaseRefused(f"it has format {found}, and this version of the service reads format {version}")
    damage = execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise DatabaseRefused(f"it is damaged: {damage.splitlines()[-1]}")
    execute("PRAGMA journal_mode = WAL")
    execute("PRAGMA synchronous = FULL")


class Database:
    """An open file. With an empty `path`, a temporary file of SQLite that is deleted at the close."""

    def __init__(self, path: str, encryption: Encryption | None = None):
        """Open the file, or create it. Raises `DatabaseRefused` if it is not usable, and then does not change it."""
        self.path, self.encryption = path, encryption or Encryption()
        try:
            if path:
                check_header(Path(path), APPLICATION_ID)
                make_private(Path(path))
            self._connection = sqlite3.connect(path, timeout=1, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error, DatabaseRefused) as error:
            raise DatabaseRefused(f"database {path}: {error}; nothing in it was changed") from error

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")  # a second process on the same file must fail, not interleave
        prepare(self._connection, _SCHEMA, APPLICATION_ID, _VERSION)
        self._connection.executescript(_ADDED)
        if self.encryption.on:
            self._leave_no_clear_text()
        else:
            execute("DELETE FROM sealed WHERE id = 0")  # without the condition it writes although there is none

    def _leave_no_clear_text(self) -> None:
        """Delete entries in clear text, and their remains in the file and its log."""
        execute = self._connection.execute
        gone = execute("DELETE FROM entries WHERE CAST(asked AS BLOB) <> ?", (SEALED,)).rowcount
        if gone:
            _log.warning("%d entries were in clear text, and there is an encryption_key: they are deleted", gone)
        elif execute("SELECT count(*) FROM sealed").fetchone()[0]:
            return
        try:
            execute("VACUUM")
            execute("PRAGMA wal_checkpoint(TRUNCATE)")
            execute("INSERT OR REPLACE INTO sealed VALUES (0)")
        except sqlite3.Error as error:  # such as a full disk
            _log.error(
                "clear text that was deleted may still be in the file, and the next start tries again: %s", error
            )

    def load(self, embedded_by: str, over_ms: int) -> Iterator[tuple[Entry, Vector | None]]:
        """Every entry, least recently used first, with its embedding if `embedded_by` made it. Entries that
        `encryption_key` cannot decrypt are skipped, and stay in the file until they expire: a later start may have the
        right key.

        Entries that expired before `over_ms` (Unix time in milliseconds) are deleted.
        """
        self._tidy("DELETE FROM entries WHERE expires_at_ms <= ?", over_ms)
        read = "key, tenant, partition, CAST(asked AS BLOB), answer, expires_at_ms, used_at_ms, embedded_by, embedding"
        read += ", coalesce(least_score, 0.0), coalesce(uses, 0), coalesce(priority, 0.0)"
        found = "entries LEFT JOIN tightened USING (key) LEFT JOIN worth USING (key) WHERE expires_at_ms > ?"
        rows = self._connection.execute(f"SELECT {read} FROM {found} ORDER BY used_at_ms", (over_ms,))
        for *columns, made_by, embedding, least_score, uses, priority in rows:
            kept = Entry(*columns)
            kept.least_score, kept.uses, kept.priority = least_score, uses, priority
            try:
                entry, embedding = self.encryption.open(kept, embedding or b"")
            except UnreadableEntry:
                continue
            yield entry, unpacked(embedding) if embedding and made_by == embedded_by else None

    def verified(self, made_by: str) -> list[tuple[Traffic, tuple[object, ...]]]:
        """The verification records of each tenant and category, the least recently written first. Records by another
        engine than `made_by` are deleted."""
        self._tidy("DELETE FROM verified_traffic WHERE made_by <> ?", made_by)
        found = "SELECT * FROM verified_traffic WHERE made_by = ? ORDER BY written_at_ms"
        rows = self._connection.execute(found, (made_by,)).fetchall()
        return [(Traffic(str(tenant), str(category)), tuple(row)) for tenant, category, _, _, *row in rows]

    def _tidy(self, sql: str, *parameters: object) -> None:
        """Delete what is not read any more; a full disk keeps it."""
        try:
            self._connection.execute(sql, parameters)
        except sqlite3.OperationalError as error:
            _log.error("database %s: what is outdated stays in it for now: %s", self.path, error)

    def sequence(self) -> int:
        """The last sequence number that was written."""
        row = self._connection.execute("SELECT last FROM position").fetchone()
        return int(row[0]) if row else 0

    def apply(self, statements: Iterable[Statement]) -> None:
        """Run statements in one transaction: after the return all are on disk; after an error none is."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            for sql, parameters in statements:
                self._connection.executemany(sql, parameters)
            self._connection.execute("COMMIT")
        except BaseException:  # also an error of the driver, such as for a number beyond SQLite's integers
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file; everything applied stays in it."""
        self._connection.close()


def make_private(path: Path) -> None:
    """Make the file readable by its owner only, because it holds tenants' questions and answers. SQLite's other files
    get its mode."""
    os.close(open_private(str(path), os.O_CREAT | os.O_RDWR))
    for file in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm", "-journal"))):
        try:
            if file.exists() and take_from_others(file):
                _log.warning("%s could be read by others: it is its owner's alone from now on", file)
        except OSError as error:
            _log.warning("%s can be read by others, and that cannot be changed: %s", file, error)


def check_header(path: Path, application_id: int) -> None:
    """Check the header before SQLite opens the file, because opening could change a file of another application.

    Source: https://www.sqlite.org/fileformat.html#the_database_header
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        return
    with path.open("rb") as file:
        header = file.read(100)
    if header and not header.startswith(b"SQLite format 3\0"):
        raise DatabaseRefused("it is not an SQLite database")
    if header and int.from_bytes(header[68:72]) != application_id:
        raise DatabaseRefused("it belongs to another application")
