"""The file of the collections: it outlives a restart and another engine, and has one owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cache.collections.documents import Ranking
from services.cache.collections.file import CollectionFile
from services.cache.errors import DatabaseRefused
from tests.unit.cache.collections.conftest import OpenCollections, document
from tests.unit.cache.collections.test_collections import LONG, PORTS, REDIS, found
from tests.unit.cache.conftest import DIMENSION, BagOfWords


async def test_a_restart_loses_nothing_and_embeds_nothing(open_collections: OpenCollections, tmp_path: Path) -> None:
    path = str(tmp_path / "collections.db")
    collections = open_collections(path)
    await collections.put("acme", "docs", document("redis.md", REDIS), "how it is run")
    await collections.put("acme", "docs", document("ports.md", PORTS))
    await collections.remove("acme", "docs", ["redis.md"])
    listed = await collections.listed("acme")
    collections.close()

    engine = BagOfWords()
    again = open_collections(path, engine)
    assert await again.listed("acme") == listed
    assert (listed[0].description, listed[0].documents, listed[0].waiting) == ("how it is run", 1, 0)
    assert await found(again, "gateway port", ranking=Ranking.MEANING) == ["ports.md"]
    assert engine.embedded == ["gateway port"]


async def test_documents_embedded_by_another_engine_are_found_by_words_until_they_are_embedded_again(
    open_collections: OpenCollections, tmp_path: Path
) -> None:
    path = str(tmp_path / "collections.db")
    collections = open_collections(path)
    await collections.put("acme", "docs", document("long.md", LONG))
    collections.close()

    other = BagOfWords()
    other.name = "another bag of words"
    again = open_collections(path, other)
    assert (await again.listed("acme"))[0].waiting == 20
    assert await found(again, "section", ranking=Ranking.MEANING) == []
    assert await found(again, "section", ranking=Ranking.WORDS) == ["long.md"] * 5
    await again.run()
    assert (await again.listed("acme"))[0].waiting == 0
    assert await found(again, "section", ranking=Ranking.MEANING) == ["long.md"] * 5


async def test_a_file_has_one_owner(open_collections: OpenCollections, tmp_path: Path) -> None:
    path = str(tmp_path / "collections.db")
    open_collections(path)
    with pytest.raises(DatabaseRefused, match="another process has it open"):
        CollectionFile(path, DIMENSION)


async def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine, and no database" * 10)
    with pytest.raises(DatabaseRefused, match="it is not an SQLite database"):
        CollectionFile(str(path), DIMENSION)
    assert path.read_text() == "mine, and no database" * 10
