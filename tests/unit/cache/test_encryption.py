"""Stored questions and answers are encrypted where there is a key."""

from __future__ import annotations

import logging
import sqlite3
from base64 import b64encode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from services.cache import database, encryption
from services.cache.answers import Verdict
from services.cache.config import CacheSettings
from services.cache.database import Database
from services.cache.encryption import SEALED, Encryption, UnreadableEntry
from services.cache.entries import Entry
from services.cache.tombstones import Removal
from tests.unit.cache.asking import CAPITAL, REWORDED, look_up, store
from tests.unit.cache.conftest import OpenCache

KEY, OTHER = b"k" * 32, b"o" * 32
ANSWER = b"the answer is a secret of acme"
VECTOR = np.full(64, 0.125, np.float32)
ENTRY = Entry("0" * 64, "acme", b"partition", b"what is the secret of acme", ANSWER, 2_000_000, 1)


def on_disk(folder: Path) -> bytes:
    """Everything of the database, its log included."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


@given(asked=st.text(), answer=st.binary(), embedding=st.binary())
def test_a_sealed_entry_opens_unchanged_and_shows_nothing(asked: str, answer: bytes, embedding: bytes) -> None:
    entry = replace(ENTRY, asked=asked.encode(), answer=answer)
    sealed = Encryption([KEY]).seal(entry, embedding)
    kept = replace(entry, asked=sealed.asked, answer=sealed.answer)
    assert Encryption([OTHER, KEY]).open(kept, sealed.embedding) == (entry, embedding)
    assert sealed.asked == SEALED
    for part in (entry.asked, answer, embedding):
        assert len(part) < 4 or part not in sealed.answer
    assert Encryption([KEY]).seal(entry, embedding) != sealed  # a nonce of its own


@pytest.mark.parametrize(
    "moved",
    [
        {"key": "1" * 64},
        {"tenant": "globex"},
        {"partition": b"another"},
        {"expires_at_ms": 9_000_000},
        {"tenant": "acm", "partition": b"epartition"},
    ],
)
def test_an_entry_moved_to_another_row_does_not_open(moved: dict[str, object]) -> None:
    sealed = Encryption([KEY]).seal(ENTRY, b"")
    kept = replace(ENTRY, asked=sealed.asked, answer=sealed.answer)
    with pytest.raises(UnreadableEntry, match="authentication tag does not match"):
        Encryption([KEY]).open(replace(kept, **moved), b"")


@given(place=st.integers(0), flip=st.integers(1, 255))
def test_an_entry_changed_anywhere_does_not_open(place: int, flip: int) -> None:
    sealed = bytearray(Encryption([KEY]).seal(ENTRY, b"").answer)
    sealed[place % len(sealed)] ^= flip
    with pytest.raises(UnreadableEntry):
        Encryption([KEY]).open(replace(ENTRY, asked=SEALED, answer=bytes(sealed)), b"")


@pytest.mark.parametrize("kept", [b"", b"x", b"x" * 20])
def test_a_truncated_entry_does_not_open(kept: bytes) -> None:
    name = Encryption([KEY]).seal(ENTRY, b"").answer[:4]
    for answer in (kept, name + kept):
        with pytest.raises(UnreadableEntry):
            Encryption([KEY]).open(replace(ENTRY, asked=SEALED, answer=answer), b"")


async def test_a_copy_of_the_disk_shows_neither_question_nor_answer_nor_vector(
    open_cache: OpenCache, tmp_path: Path
) -> None:
    bench = open_cache(tmp_path / "cache.db", keys=[KEY])
    await store(bench, CAPITAL, ANSWER)
    vector = bench.engine.embed_batch([CAPITAL.asked])[0]
    assert vector is not None
    for _ in range(2):  # with its log, and after a restart
        disk = on_disk(tmp_path)
        for secret in (CAPITAL.asked.encode(), b"capital", ANSWER, b"secret", vector.tobytes(), vector.tobytes()[:16]):
            assert secret not in disk
        bench = await bench.restarted()
        assert (await look_up(bench, CAPITAL)).verdict is Verdict.EXACT
        found = await look_up(bench, REWORDED)
        assert (found.verdict, found.entry and found.entry.answer) == (Verdict.SEMANTIC, ANSWER)


async def test_with_a_key_clear_text_is_erased_from_the_disk(
    open_cache: OpenCache, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = open_cache(tmp_path / "cache.db")
    bench.database._connection.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite have it on
    for question in (CAPITAL, REWORDED):
        await store(bench, question, ANSWER)
    await bench.answers.remove(Removal(key=REWORDED.key))  # its bytes stay
    await bench.close()
    assert REWORDED.asked.encode() in on_disk(tmp_path)
    with caplog.at_level(logging.WARNING):
        bench = bench.reopen(keys=[KEY])
    assert "1 entries were in clear text, and there is an encryption_key: they are deleted" in caplog.text
    assert ANSWER not in on_disk(tmp_path)
    assert b"capital" not in on_disk(tmp_path)
    assert (await look_up(bench, CAPITAL)).verdict is Verdict.MISS


@pytest.mark.parametrize("keys", [[], [KEY]], ids=["none", "one"])
def test_clear_text_opens_only_without_a_key(keys: list[bytes]) -> None:
    cipher = Encryption(keys)
    if not keys:
        assert cipher.open(ENTRY, b"vector") == (ENTRY, b"vector")
        return
    with pytest.raises(UnreadableEntry, match="clear text"):
        cipher.open(ENTRY, b"vector")


def test_a_row_in_clear_text_that_comes_later_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    Database(str(path), Encryption([KEY])).close()
    older = sqlite3.connect(path)
    row = (*(ENTRY.key, ENTRY.tenant, ENTRY.partition, ENTRY.asked.decode(), b"forged"), 2_000_000, 1, "engine", None)
    older.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    older.commit()
    older.close()
    file = Database(str(path), Encryption([KEY]))
    assert list(file.load("engine", 0)) == []
    file.close()
    assert b"forged" not in on_disk(tmp_path)


async def test_keys_are_rotated_by_putting_a_new_one_first(open_cache: OpenCache, tmp_path: Path) -> None:
    bench = open_cache(tmp_path / "cache.db", keys=[KEY])
    await store(bench, CAPITAL, ANSWER)
    bench = await bench.restarted(keys=[OTHER, KEY])
    await store(bench, REWORDED, ANSWER)
    bench = await bench.restarted(keys=[OTHER])
    assert (await look_up(bench, REWORDED)).verdict is Verdict.EXACT
    assert (await look_up(bench, CAPITAL, threshold=1)).verdict is Verdict.MISS


def counted() -> float:
    (metric,) = encryption._UNREADABLE.collect()
    return metric.samples[0].value


@pytest.fixture
def sealed(tmp_path: Path) -> str:
    path = str(tmp_path / "cache.db")
    file = Database(path, Encryption([KEY]))
    entries = [replace(ENTRY, key=str(number), expires_at_ms=10**15) for number in range(3)]
    file.apply(database.insert(entry, "engine", VECTOR, file.encryption) for entry in entries)
    file.close()
    return path


@pytest.mark.parametrize("keys", [[OTHER], []], ids=["wrong", "none"])
async def test_a_wrong_key_costs_hits_and_nothing_else_and_the_right_one_finds_everything(
    open_cache: OpenCache, sealed: str, caplog: pytest.LogCaptureFixture, keys: list[bytes]
) -> None:
    before = counted()
    with caplog.at_level(logging.ERROR):
        bench = open_cache(sealed, keys=keys)
        await bench.store.load()
    assert len(bench.answers.entries) == 0
    assert counted() == before + 6  # the fixture reads them, too
    assert caplog.text.count("an entry cannot be read") == 1
    assert "of 6 entries in the database cannot be read with this encryption_key, and are left there" in caplog.text
    await store(bench, CAPITAL)
    await bench.close()
    file = Database(sealed, Encryption([KEY]))
    found = list(file.load("engine", 0))
    assert len(found) == 3
    for entry, vector in found:
        assert (entry.asked, entry.answer) == (ENTRY.asked, ENTRY.answer)
        assert vector is not None
        assert (vector == VECTOR).all()
    file.close()


GOOD = b64encode(KEY).decode()


@pytest.mark.parametrize("text", ["", GOOD, f"{GOOD}, {b64encode(OTHER).decode()}"])
def test_several_keys_are_separated_by_commas(text: str) -> None:
    settings = CacheSettings(encryption_key=text)
    found = encryption.keys(settings.encryption_key.get_secret_value())
    assert found == [KEY, OTHER][: len(text) // 40]
    assert not text or text not in f"{settings!r}{settings.model_dump_json()}"


@pytest.mark.parametrize("text", ["hunter2", GOOD[:-8], f"{GOOD},hunter2"])
def test_an_invalid_key_is_refused_by_its_length_and_is_not_shown(text: str) -> None:
    with pytest.raises(ValidationError, match=r"key [12]: 32 bytes in base64") as refused:
        CacheSettings(encryption_key=text)
    assert all(text not in problem["msg"] for problem in refused.value.errors())
