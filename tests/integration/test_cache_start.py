"""Starts of a cache service, and faults that end one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from hedgerow.cache.v1 import cache_pb2
from services.cache import conversion, engines
from services.cache.database import Database
from tests.forked import refused_start
from tests.integration.cache_process import CAPITAL, REWORDED, StartCache, lookup, store


@pytest.mark.parametrize("kind", ["foreign", "text", "damaged", "newer"])
async def test_a_database_that_is_not_usable_stops_the_start_and_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "cache.db"
    expected = spoil(path, kind)
    before = path.read_bytes()
    ended = await refused_start("cache", database=path)
    assert ended.code == 2
    assert expected in ended.err
    assert "Traceback" not in ended.err
    assert path.read_bytes() == before


def spoil(path: Path, kind: str) -> str:
    """Makes a file that is not usable. Returns what the error must say."""
    if kind == "text":
        path.write_text("not a database, and long enough to be looked at\n" * 100)
        return "not an SQLite database"
    if kind == "foreign":
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE theirs (data)")
        connection.close()
        return "belongs to another application"
    Database(str(path)).close()
    if kind == "newer":
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        return "format 99"
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)  # all pages but the first
    path.write_bytes(content)
    return "it is damaged"


async def test_a_second_process_on_the_same_database_does_not_start(start_cache: StartCache, tmp_path: Path) -> None:
    database = tmp_path / "cache.db"
    _, cache = await start_cache(database=database)
    await cache.Store(store(CAPITAL))
    ended = await refused_start("cache", database=database)
    assert ended.code == 2
    assert "locked" in ended.err
    assert (await cache.Lookup(lookup(CAPITAL))).verdict == cache_pb2.VERDICT_EXACT


async def test_a_model_that_is_there_is_served_as_it_is(
    start_cache: StartCache, model_cache: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "none"
    _, cache = await start_cache(model=conversion.converted(model_cache), model_cache=empty)
    stored = await cache.Store(store(CAPITAL))
    assert (await cache.Lookup(lookup(REWORDED))).key == stored.key
    assert not empty.exists()


@pytest.mark.parametrize("when", ["start", "first_use"])
async def test_a_model_that_is_not_whole_ends_the_start(tmp_path: Path, when: str) -> None:
    (tmp_path / "model.bin").touch()
    ended = await refused_start("cache", model=tmp_path, load_embedder=when)
    assert ended.code == 2
    assert f"model: {tmp_path} has no tokenizer.json" in ended.err


def test_without_the_embedders_packages_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversion, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(conversion.NoModel, match=r"not here: torch; .* pip install 'hedgerow\[cache,embedder\]'"):
        conversion.packaged()


def test_the_fast_engine_agrees_with_the_reference(model_cache: Path) -> None:
    fast = engines.load("ctranslate2", model_cache, 128)
    reference = engines.load("sentence_transformers", model_cache, 128)
    texts = [CAPITAL, "how do i reset my password", "word " * 200, "7 plus 5", "word " * 100]
    for text, ours, theirs in zip(texts, fast.embed_batch(texts), reference.embed_batch(texts), strict=True):
        if len(text) == 1_000:
            assert ours is theirs is None
        else:
            assert ours is not None
            assert theirs is not None
            assert ours @ theirs > 0.99
