"""The records of decisions in docs/adr are few, short and numbered without a gap, and each reference names one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
RECORDS = sorted((REPOSITORY / "docs/adr").glob("*.md"))
NUMBERS = range(1, len(RECORDS) + 1)
_MOST, _MOST_WORDS = 40, 180

each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=REPOSITORY, capture_output=True, check=True)
    return [path for name in listed.stdout.decode().split("\0") if name and (path := REPOSITORY / name).is_file()]


def test_numbers_are_contiguous() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(NUMBERS)
    assert len(RECORDS) <= _MOST, "merge the records of one subject"


@each_record
def test_a_record_states_its_decision_and_why(record: Path) -> None:
    text = record.read_text()
    (number,) = re.findall(r"\A# (\d+)\. [A-Z]", text)
    assert int(number) == int(record.name[:4])
    assert "**Context.**" in text
    assert "**Decision.**" in text
    assert "**Given up.**" in text
    assert len(text.split()) <= _MOST_WORDS


def test_every_reference_names_a_record() -> None:
    for path in tracked("*.py", "*.md", "*.tsv", "*.toml", "*.yaml", "*.proto"):
        text = path.read_text()
        for number in re.findall(r"\bADR\s+(\d+)\b", text):
            assert int(number) in NUMBERS, f"{path}: ADR {number}"
        for name in re.findall(r"\badr/(\d{4}[\w.-]*)", text):
            assert any(each.name.startswith(name) for each in RECORDS), f"{path}: {name}"
        for label, name in re.findall(r"\[(?:ADR\s+)?(\d+)\]\((?:docs/)?adr/(\d+)", text):
            assert int(label) == int(name), f"{path}: [{label}](…{name}…)"
