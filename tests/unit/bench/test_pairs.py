"""Labelled pairs, as they are read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.cache import pairs
from bench.cache.pairs import BadPairs, Pair

LINE = json.dumps({"a": "one", "b": "two", "duplicate": 1})


@pytest.mark.parametrize("label", [1, True])
def test_labels_are_numbers_or_booleans_and_files_may_be_compressed(tmp_path: Path, label: object) -> None:
    plain, compressed = tmp_path / "pairs.jsonl", tmp_path / "pairs.jsonl.gz"
    plain.write_text(json.dumps({"a": "one", "b": "two", "duplicate": label, "more": 3}) + "\n\n")
    compressed.write_bytes(gzip.compress(plain.read_bytes()))
    for file in (plain, compressed):
        assert pairs.read(file) == [Pair("one", "two", True)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LINE}\nnonsense", "line 2: a JSON object on one line, got 'nonsense'"),
        ("[1]", "line 1: a JSON object, got"),
        ('{"b": "two", "duplicate": 1}', "line 1: a: text other than white space, got None"),
        ('{"a": "one", "b": " ", "duplicate": 1}', "line 1: b: text other than white space, got ' '"),
        ('{"a": "one", "b": "two", "duplicate": 2}', "line 1: duplicate: 0 or 1, got 2"),
        ('{"a": "one", "b": "two"}', "line 1: duplicate: 0 or 1, got None"),
        ("[" * 100_000, "line 1: a JSON object on one line"),
        ("", "has no pairs"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(text)
    with pytest.raises(BadPairs, match=said.replace("[", r"\[")):
        pairs.read(file)


@pytest.mark.parametrize("content", [b"\xff\xfe nonsense", b"", gzip.compress(LINE.encode(), mtime=0)[:-12]])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "pairs.jsonl.gz"
    file.write_bytes(content)
    with pytest.raises(BadPairs, match=str(file)):
        pairs.read(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadPairs, match=r"none\.jsonl cannot be read"):
        pairs.read(tmp_path / "none.jsonl")
