"""Code that reads texts with regular expressions or in pieces is measured, or says why not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.unit.linear.readers import PLAIN, READERS

_ROOT = Path(__file__).parents[2]
_LISTED = tomllib.loads((_ROOT / "tests/unit/linear/modules.toml").read_text())
_USES = re.compile(
    r"\bre\.(?:compile|search|match|fullmatch|sub|split|findall|finditer)\b"
    r"|\bunicodedata\.normalize\b|^ *import regex\b|\bSentenceSplitter\b|\bMultiPartParser\b|\bdef gather\b",
    re.MULTILINE,
)


def _modules() -> set[str]:
    files = (file for folder in ("services", "hedgerow", "hedgerow_cli") for file in (_ROOT / folder).rglob("*.py"))
    return {file.relative_to(_ROOT).as_posix() for file in files if _USES.search(file.read_text())}


def test_each_module_that_reads_texts_is_fed_with_long_ones_or_says_why_not():
    assert _modules() <= {*_LISTED["read"], *_LISTED["left_out"]}


def test_listed_modules_exist():
    assert _LISTED["left_out"].keys() <= _modules()
    assert [name for name in _LISTED["read"] if not (_ROOT / name).is_file()] == []


def test_no_module_is_both_and_each_reason_says_something():
    assert _LISTED["read"].keys().isdisjoint(_LISTED["left_out"])
    assert all(len(reason.split()) >= 3 for reason in _LISTED["left_out"].values())


def test_the_readers_that_are_named_exist():
    named = {name for readers in _LISTED["read"].values() for name in readers}
    assert named <= READERS.keys()
    assert PLAIN.keys() <= READERS.keys()
