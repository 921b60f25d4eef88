"""A full disk refuses changes of collections, and loses none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.cache.collections.documents import Cut, Ranking, Snippet
from services.cache.collections.file import CollectionFile
from services.cache.collections.reading import CollectionReader
from services.cache.collections.settings import CollectionSettings
from services.cache.collections.writing import CollectionWriter
from services.cache.errors import NotKept
from tests.unit.cache.conftest import DIMENSION, Clock


async def test_a_full_disk_refuses_changes_loses_nothing_and_takes_them_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "collections.db")
    file = CollectionFile(path, DIMENSION)
    writer = CollectionWriter(file, CollectionSettings(), "engine", Clock())
    reader = CollectionReader(file, "engine")

    def put(number: int) -> None:
        vector = np.eye(DIMENSION, dtype=np.float32)[0]
        snippet = Snippet(f"title {number}", "word " * 500, "")
        writer.put("acme", "docs", Cut(f"{number}", "", b"", 1, (snippet,), (vector,)), "", None)

    put(0)
    (pages,) = file.writer.execute("PRAGMA page_count").fetchone()
    file.writer.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own "database or disk is full"
    for number in (1, 2):
        with pytest.raises(NotKept):
            put(number)
    assert [each.source for each in reader.documents("acme", "docs", "", 9)] == ["0"]
    assert len(reader.search("acme", "docs", "word", None, Ranking.WORDS, 9)) == 1
    assert len(file.vectors) == 1
    file.writer.execute("PRAGMA max_page_count = 1000000")
    put(3)
    assert [each.source for each in reader.documents("acme", "docs", "", 9)] == ["0", "3"]
    assert [record.getMessage() for record in caplog.records] == [
        f"collections_database {path}: a change failed, and 0 before since the last line: database or disk is full"
    ]
    file.close()
