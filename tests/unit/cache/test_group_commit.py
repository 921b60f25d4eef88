"""Writes in order, many to a commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from services.cache import database as sql
from services.cache.database import Database, Statement
from services.cache.entries import Entry
from services.cache.errors import NotKept
from services.cache.group_commit import GroupCommit
from services.cache.tombstones import Removal
from tests.clock import PausedClock


class Counting(Database):
    """A database that counts its commits."""

    commits = 0

    def apply(self, statements: Iterable[Statement]) -> None:
        super().apply(statements)
        self.commits += 1


async def test_writes_that_wait_together_share_a_commit_and_keep_their_order() -> None:
    database = Counting("")
    commits = GroupCommit(database)
    entries = [Entry(str(number), "acme", b"", b"why?", b"x", 10, 0) for number in range(5)]
    writes = [commits.append(sql.insert(entry, "engine", None, database.encryption)) for entry in entries]
    writes += [commits.append(sql.delete(["0"])), commits.append(sql.remove(Removal(tenant="globex")))]
    await commits.flush()
    await asyncio.gather(*writes)
    assert database.commits == 1
    assert {entry.key for entry, _ in database.load("engine", 0)} == {"1", "2", "3", "4"}
    await commits.close()


async def test_a_number_that_sqlite_has_no_room_for_fails_its_commit_alone() -> None:
    database = Database("")
    commits = GroupCommit(database)
    running = asyncio.create_task(commits.run())
    far = commits.append(
        sql.insert(Entry("0", "acme", b"", b"why?", b"x", 2**63, 0), "engine", None, database.encryption)
    )
    await asyncio.wait([far, running], return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(far.exception(), NotKept)
    await commits.append(sql.insert(Entry("1", "acme", b"", b"why?", b"x", 10, 0), "engine", None, database.encryption))
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert [entry.key for entry, _ in database.load("engine", 0)] == ["1"]
    await commits.close()


class Full(Database):
    """A database on a disk that is full."""

    def apply(self, statements: Iterable[Statement]) -> None:
        raise sqlite3.OperationalError("database or disk is full")


async def test_a_disk_that_is_full_has_one_line_a_minute_that_names_the_file(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path, clock = tmp_path / "answers.db", PausedClock()
    commits = GroupCommit(Full(str(path)), clock)
    for pause_s in (0, 1, 60):
        clock.advance(pause_s)
        write = commits.append(sql.delete(["0"]))
        await commits.flush()
        assert isinstance(write.exception(), NotKept)
    assert caplog.messages == [
        f"database {path}: 1 writes failed, and {before} times before since the last line: database or disk is full"
        for before in (0, 1)
    ]
    await commits.close()
